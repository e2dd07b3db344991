# SPDX-License-Identifier: Apache-2.0
"""One connection to a cluster per process and set of options, and the thread that runs its loop.

Planner, commit runner and workers are separate Python processes, and Spark reuses workers: what is pickled holds
options only, and the first use in a process opens what it needs. A forked child never uses its parent's.
Carries.
"""

import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from magnetar.client.authentication import Authentication, AuthenticationTLS, AuthenticationToken
from magnetar.client.client import Client
from magnetar.client.core import Core
from magnetar.client.schema_info import BYTES_INFO, SchemaInfo
from magnetar.errors import BadSetting, NotSupported, Refused
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.loop_thread import LoopThread
from magnetar.spark.options import ConnectionOptions, TopicChoice
from magnetar.spark.pattern import is_data, pattern_parts
from magnetar.wire.proto import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from magnetar.spark.storage import Storage

Result = TypeVar("Result")

CLUSTERS_MAX: Final = 16


class Cluster:
    """A client on a loop of its own, for callers that block; and the way to the bookies, where it is known."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._metadata_url = options.metadata_url
        self._storage: Storage | None = None
        # Which targets have been told, from this process, what will be written to them.
        self.announced: set[tuple[str, bytes]] = set()
        self._thread = LoopThread("magnetar-spark")
        self.client = Client(
            options.service_url,
            _authentication(options),
            operation_timeout_seconds=options.operation_timeout_ms / 1000,
            tls_trust_certs_file_path=options.tls_trust_file,
            tls_allow_insecure_connection=options.tls_insecure,
            tls_validate_hostname=options.tls_validate_hostname,
            tls_certificate_file_path=options.tls_certificate_file,
            tls_private_key_file_path=options.tls_key_file,
            client_name="spark",
        )

    @property
    def is_usable(self) -> bool:
        return self._thread.is_here and not self._thread.is_closed

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run on the client's loop and wait for the outcome."""
        return self._thread.run(coroutine)

    def core(self) -> Core:
        return self.client.core

    async def storage(self) -> "Storage":
        """Raises BadSetting without `metadata.url`, and what the store says where it cannot be reached."""
        if self._metadata_url is None:
            raise BadSetting("option metadata.url is missing: it says where the ledgers of topics are listed")
        if self._storage is None:
            # A room of its own to load, which few reads need.
            from magnetar.spark.storage import Storage

            self._storage = await Storage.open(self._metadata_url)
        return self._storage

    async def partitions_on_record(self, choice: TopicChoice) -> list[str]:
        """The same as `partitions_of` without a broker, from the metadata itself."""
        if choice.pattern is not None:
            raise BadSetting("topicsPattern needs a broker: with read.via=bookies name the topics")
        storage = await self.storage()
        found: dict[str, None] = {}
        for name in (TopicName.parse(name) for name in choice.names):
            count = 0 if name.is_partition else await storage.partitions(name)
            found |= dict.fromkeys([str(name.partition(n)) for n in range(count)] if count else [str(name)])
        return sorted(found)

    async def partitions_of(self, choice: TopicChoice) -> list[str]:
        """The names of all partitions (or the topics themselves where there are none), sorted."""
        names = [TopicName.parse(name) for name in choice.names]
        if choice.pattern is not None:
            names = await self._matching(choice.pattern)
        found: dict[str, None] = {}
        for name in names:
            count = 0 if name.is_partition else await self._partitions(name)
            found |= dict.fromkeys([str(name.partition(n)) for n in range(count)] if count else [str(name)])
        return sorted(found)

    async def _partitions(self, topic: TopicName) -> int:
        core = self.core()
        return await core.retried(lambda: _partitions(core, topic))

    async def _matching(self, pattern: str) -> list[TopicName]:
        namespace, expression = pattern_parts(pattern)
        core = self.core()
        mode = pb.CommandGetTopicsOfNamespace.PERSISTENT
        listed = await core.retried(lambda: core.lookup.topics(NamespaceName.parse(namespace), mode, "", ""))
        bases = {str(TopicName.parse(topic).base) for topic in listed.topics}
        return [TopicName.parse(topic) for topic in sorted(bases) if expression.fullmatch(topic) and is_data(topic)]

    async def schema_of(self, topic: str) -> SchemaInfo:
        """The topic's latest schema; that of plain bytes if it has none, or if the broker keeps none."""
        core = self.core()
        name = TopicName.parse(topic)
        try:
            found = await core.retried(lambda: core.lookup.schema(name))
        except NotSupported:
            return BYTES_INFO
        return BYTES_INFO if found is None else found[0]


async def _partitions(core: Core, topic: TopicName) -> int:
    try:
        return await core.lookup.partitions(topic, create=False)
    except Refused as error:
        if type(error) is not Refused:
            raise
        return await core.lookup.partitions(topic)  # an old broker, which cannot be asked without creating


def _authentication(options: ConnectionOptions) -> Authentication | None:
    if options.token_file is not None:
        return AuthenticationToken(f"file://{options.token_file}")
    if options.token_environment is not None:
        name = options.token_environment
        if name not in os.environ:
            raise BadSetting(f"option tokenEnvironment names {name}, which is not set in this process")
        return AuthenticationToken(os.environ[name])
    if options.tls_certificate_file is not None and options.tls_key_file is not None:
        return AuthenticationTLS(options.tls_certificate_file, options.tls_key_file)
    return None


_open: dict[ConnectionOptions, Cluster] = {}


def cluster(options: ConnectionOptions) -> Cluster:
    """This process's cluster for these options, opened when first asked for."""
    found = _open.get(options)
    if found is None or not found.is_usable:
        if len(_open) >= CLUSTERS_MAX:
            _open.pop(next(iter(_open)))
        found = _open[options] = Cluster(options)
    return found
