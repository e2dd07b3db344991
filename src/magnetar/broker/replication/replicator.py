# SPDX-License-Identifier: Apache-2.0
"""One topic's way to one other cluster: reads the log in order, sends what goes there, remembers how far it arrived.

Owns the cursor `pulsar.repl.<cluster>`, which keeps the log until it has arrived, and at most one producer over there.
Whatever goes wrong, it lets go of the producer, waits, and begins again behind the last message of which it has the
receipt: order is kept, nothing is skipped, and what arrived without a receipt is sent again, which the other cluster's
deduplication recognises by the first producer's own name and sequence ids. Never holds up the topic.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magnetar.broker.dispatch_rates import rate_of
from magnetar.broker.producer import REPLICATOR_PREFIX, replicator_name
from magnetar.broker.rate_limit import NamedLimit, Rate, named_limit
from magnetar.broker.replication.in_flight import InFlight, Sent
from magnetar.broker.replication.parts import ReplicationParts
from magnetar.broker.replication.passage import departing, goes_to, is_expired
from magnetar.broker.replication.remote_clusters import RemoteCluster
from magnetar.broker.replication.remote_producer import RemoteProducer
from magnetar.broker.schemas.schema import schema_to_wire, version_number
from magnetar.client.backoff import Backoff
from magnetar.errors import BadFrame, BadSetting, InvariantBroken, MagnetarError, NotSupported, TopicNotFound
from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.names import TopicName
from magnetar.wire import broker_entry, message
from magnetar.wire.message import Buffer
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata

if TYPE_CHECKING:
    from magnetar.broker.topic import Topic

_READ_ENTRIES: Final = 100
_READ_BYTES: Final = 4 * 1024 * 1024
_IN_FLIGHT_BYTES_MAX: Final = 16 * 1024 * 1024
_BACKOFF_MS: Final = (100, 10_000)

_log = logging.getLogger(__name__)

OnMarker = Callable[[Position, MessageMetadata, bytes], None]


def cursor_name(cluster: str) -> str:
    return REPLICATOR_PREFIX + cluster


async def _partitions(cluster: RemoteCluster, topic: TopicName) -> int:
    try:
        return await cluster.core.lookup.partitions(topic, create=False)
    except TopicNotFound:
        return 0


class Replicator:
    def __init__(
        self, topic: "Topic", cursor: Cursor, remote: str, parts: ReplicationParts, on_marker: OnMarker
    ) -> None:
        """`on_marker` gets what the other cluster tells about subscriptions, with the place where it lies here."""
        self.remote = remote
        self.cursor = cursor
        self.messages_out = 0
        self.bytes_out = 0
        # Entries that were too old to go, since the topic was loaded; and when that was last looked at.
        self.entries_expired = 0
        self.expired_ms = 0
        # Why nothing goes there at this moment; empty while it does.
        self.trouble = "it was not connected yet"
        self._topic = topic
        self._parts = parts
        self._on_marker = on_marker
        self._producer: RemoteProducer | None = None
        self._in_flight = InFlight()
        self._changed = asyncio.Event()
        self._backoff = Backoff(*_BACKOFF_MS, parts.random)
        # By the version that a schema has here: the version that it has there.
        self._versions: dict[bytes, bytes] = {}
        self._limit: NamedLimit | None = None

    # --- what others see ----------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._producer is not None and self._producer.error is None

    @property
    def backlog_entries(self) -> int:
        return self.cursor.backlog_entries()

    @property
    def producer(self) -> RemoteProducer | None:
        """Its producer over there, while it has one."""
        return self._producer

    def delay_s(self, now_ms: int) -> float:
        """For how long the message that waits for its receipt the longest has been published."""
        published_ms = self._in_flight.oldest_publish_time_ms
        return max(0, now_ms - published_ms) / 1000 if published_ms else 0.0

    @property
    def name(self) -> str:
        return self.cursor.name

    def skip_through(self, position: Position) -> int:
        """What lies up to a position and has not arrived never will; returns how many entries that were."""
        before = self.backlog_entries
        self.cursor.ack_cumulative(position)
        return before - self.backlog_entries

    def wake(self) -> None:
        """There may be something to send."""
        self._changed.set()

    # --- the way ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._attach()
                await self._forward()
            except MagnetarError as error:
                self._note(error)
            except InvariantBroken:
                raise
            except Exception as error:
                # A bug costs this way alone: others go on, and it is tried again.
                _log.exception("%s: the way to cluster %s failed", self._topic.name, self.remote)
                self._note(error)
            finally:
                self._detach()
            await asyncio.sleep(self._backoff.next_s())

    async def _attach(self) -> None:
        cluster = await self._parts.clusters.cluster(self.remote)
        await self._check_partitions(cluster)
        name = replicator_name(self._parts.cluster, self.remote)
        producer = RemoteProducer(
            cluster.core, self._topic.name, name, on_receipt=self._on_receipt, on_changed=self.wake
        )
        # Kept before it is attached: whoever ends this task takes it down with it.
        self._producer = producer
        self._in_flight = InFlight()
        self._versions.clear()
        await producer.attach()
        self.trouble = ""

    async def _check_partitions(self, cluster: RemoteCluster) -> None:
        """A partition goes to the same partition of a topic that has as many."""
        topic = self._topic.name
        if not topic.is_partition:
            return
        here = await self._parts.namespaces.partitions(topic.base)
        there = await _partitions(cluster, topic.base)
        if there == 0 and here > 0 and self._parts.settings.remote_topics_created:
            await cluster.create_partitioned(topic.base, here)
            there = await _partitions(cluster, topic.base)
        if topic.partition_index >= there:
            raise BadSetting(
                f"{topic.base} has {here} partitions here and {there} in cluster {self.remote}: give it as many there"
            )

    def _detach(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _note(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self.trouble:
            _log.warning("%s: nothing goes to cluster %s for now: %s", self._topic.name, self.remote, text)
        self.trouble = text

    # --- sending ------------------------------------------------------------------------------------

    async def _forward(self) -> None:
        ledger = self._topic.managed_ledger
        position = ledger.next_position(self.cursor.mark_delete)
        while True:
            self._changed.clear()
            position = max(position, ledger.first_position)
            if not self._may_send() or not self._is_readable(ledger, position):
                await self._changed.wait()
                continue
            entries_max, bytes_max = self._room()
            if entries_max < 1:
                await asyncio.sleep(self._limit.delay_s() if self._limit is not None else 0)
                continue
            for entry in await ledger.read(position, entries_max=entries_max, bytes_max=bytes_max):
                if not self._is_readable(ledger, entry.position):
                    break
                await self._take(entry)
                position = ledger.next_position(entry.position)

    def _may_send(self) -> bool:
        producer = self._producer
        assert producer is not None
        if producer.error is not None:
            raise producer.error
        waiting = self._in_flight
        is_full = len(waiting) >= self._parts.settings.replication_queue_entries or waiting.size >= _IN_FLIGHT_BYTES_MAX
        return producer.is_ready and not is_full

    def _is_readable(self, ledger: ManagedLedger, position: Position) -> bool:
        """Only what is durable and in no open transaction."""
        return position <= ledger.last_confirmed and not self._topic.transactions.buffer.hides(position)

    def _room(self) -> tuple[int, int]:
        """Entries and bytes that its queue and the topic's rate for replicators let go at this moment."""
        entries_max = min(_READ_ENTRIES, self._parts.settings.replication_queue_entries - len(self._in_flight))
        policies = self._topic.policies
        rate = Rate(0, 0) if policies is None else rate_of(policies.replicator_dispatch_rate)
        self._limit = named_limit("replicators", rate, self._limit, asyncio.get_running_loop().time)
        if self._limit is None:
            return entries_max, _READ_BYTES
        messages, size = self._limit.available()
        return (0, 0) if size < 1 else (min(entries_max, messages), min(_READ_BYTES, size))

    async def _take(self, entry: Entry) -> None:
        metadata, payload = self._read(entry)
        if metadata is None:
            self._stay(entry)
            return
        if metadata.replicated_from == self.remote and metadata.HasField("marker_type"):
            self._on_marker(entry.position, metadata, bytes(payload))
        if not goes_to(metadata, self.remote) or self._topic.transactions.buffer.has_aborted(entry):
            self._stay(entry)
        elif is_expired(metadata, self._ttl_s(), self._parts.clock.now_ms()):
            self.entries_expired += 1
            self._stay(entry)
        else:
            await self._send(entry, metadata, payload)

    async def _send(self, entry: Entry, metadata: MessageMetadata, payload: Buffer) -> None:
        version = await self._version_there(metadata.schema_version) if metadata.schema_version else b""
        producer = self._producer
        assert producer is not None
        if producer.error is not None:
            raise producer.error
        body = departing(metadata, payload, self._parts.cluster, version)
        messages = message.messages_in(metadata)
        is_chunk = metadata.num_chunks_from_msg > 1
        is_marker = metadata.HasField("marker_type")
        sequence_id = producer.send(body, messages, is_chunk=is_chunk, is_marker=is_marker)
        size = len(entry.body)
        self._in_flight.add(Sent(entry.position, sequence_id, size, messages, metadata.publish_time))
        if self._limit is not None:
            self._limit.consume(messages, size)

    def _read(self, entry: Entry) -> tuple[MessageMetadata | None, Buffer]:
        try:
            return message.split(entry.body, broker_entry.message_start(entry.body))
        except BadFrame as error:
            _log.error("%s: entry %s cannot be read and goes nowhere: %s", self._topic.name, entry.position, error)
            return None, b""

    def _stay(self, entry: Entry) -> None:
        self._in_flight.add(Sent(entry.position, None))
        self._move_cursor()

    async def _version_there(self, version: bytes) -> bytes:
        known = self._versions.get(version)
        if known is None:
            name = self._topic.name
            found = await self._parts.schemas.version(name, version_number(version))
            if found is None or found.is_deleted:
                raise NotSupported(f"Version {version.hex()} of the schema of {name} is not there any more")
            assert self._producer is not None
            known = await self._producer.adopt_schema(schema_to_wire(found.schema, name.schema_name))
            self._versions[version] = known
        return known

    def _ttl_s(self) -> int:
        return 0 if self._topic.policies is None else self._topic.policies.message_ttl_s

    # --- what has arrived -----------------------------------------------------------------------------

    def _on_receipt(self, sequence_id: int) -> None:
        sent = self._in_flight.on_receipt(sequence_id)
        if sent is None:
            return
        self._backoff.reset()
        self.messages_out += sent.messages
        self.bytes_out += sent.size
        self._move_cursor()
        self.wake()

    def _move_cursor(self) -> None:
        through = self._in_flight.through
        if through is not None and not self.cursor.is_closed:
            self.cursor.ack_cumulative(through)
