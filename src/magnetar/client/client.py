# SPDX-License-Identifier: Apache-2.0
"""The client: from a service URL to producers, consumers, readers, table views and transactions.

Owns the connections and everything made from them; closing it closes all. Nothing is connected before it is needed.
It belongs to one event loop and one process.
Assembles.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Sequence
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from magnetar.client.authentication import Authentication
from magnetar.client.consumer import Consumer, Listener
from magnetar.client.core import Core
from magnetar.client.dead_letters import DeadLetters, policy_with_names
from magnetar.client.failover import AutoClusterFailover, Failover
from magnetar.client.keywords import ClientKeywords, ConsumerKeywords, ProducerKeywords
from magnetar.client.lookup import BinaryLookup, Hosts, Lookup
from magnetar.client.options import ConsumerOptions, ConsumerType, ProducerOptions
from magnetar.client.pool import Connect, Pool, Way, over_tcp
from magnetar.client.producer import Producer
from magnetar.client.reader import Reader, reader_subscription
from magnetar.client.schema import BYTES, Schema
from magnetar.client.service_url import ServiceUrl
from magnetar.client.table_view import TableView
from magnetar.client.tls import tls_context
from magnetar.client.topic_set import TopicPattern, TopicSet
from magnetar.client.transaction import DEFAULT_TIMEOUT_MS, Coordinators, Transaction
from magnetar.config.client import ClientSettings
from magnetar.errors import AlreadyClosed, BadSetting, ConnectionLost, MagnetarError
from magnetar.ids import EARLIEST_MESSAGE, MessageId
from magnetar.names import TopicName, check_subscription
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock, WallClock
from magnetar.runtime.tasks import Tasks

T = TypeVar("T")
Part = TypeVar("Part", bound=Producer[Any] | Consumer[Any] | TableView[Any])

_log = logging.getLogger(__name__)


class Client:
    """`async with Client("pulsar://localhost:6650") as client`. Cheap to make; connects when first used."""

    def __init__(
        self,
        service_url: str | AutoClusterFailover,
        authentication: Authentication | None = None,
        *,
        clock: WallClock | None = None,
        random: Random | None = None,
        connect: Connect = over_tcp,
        tls: ssl.SSLContext | None = None,
        **settings: Unpack[ClientKeywords],
    ) -> None:
        """`tls`: in place of the one that the settings describe."""
        self._connect = connect
        self._failover = service_url if isinstance(service_url, AutoClusterFailover) else None
        self._url = ServiceUrl.parse(service_url if isinstance(service_url, str) else service_url.primary)
        self._authentication = authentication
        self._settings = ClientSettings(**settings)
        self._clock = clock or SystemClock()
        self._random = random or stream(fresh_seed(), "client")
        self._tls = tls
        others = [ServiceUrl.parse(text) for text in (self._failover.secondary if self._failover else ())]
        if tls is None and (self._settings.use_tls or any(url.uses_tls for url in (self._url, *others))):
            self._tls = tls_context(self._settings, authentication)
        self._core: Core | None = None
        self._coordinators: Coordinators | None = None
        self._open: dict[Producer[Any] | Consumer[Any] | TableView[Any], None] = {}
        self._closed = False

    def _shared(self) -> Core:
        """What all parts share, made on the loop that first uses it."""
        if self._closed:
            raise AlreadyClosed("The client is closed")
        if self._core is None:
            tasks = Tasks("client", lambda name, error: _log.error("%s ended: %s", name, error))
            pool = Pool(self._settings, self._authentication, self._tls, self._random, tasks, self._connect)
            self._core = Core(self._settings, pool, self._lookup(pool), self._clock, self._random, tasks)
            if self._failover is not None:
                tasks.start(Failover(self._failover, self._probe, self._switch).run(), "failover")
            if self._settings.stats_interval_in_seconds > 0:
                tasks.start(self._tell_statistics(), "statistics")
        self._core.check_process()
        if self._core.loop is not asyncio.get_running_loop():
            raise BadSetting("a Client belongs to one event loop: make another for this one")
        return self._core

    @property
    def core(self) -> Core:
        """What its parts share, for rooms that attach parts of their own: Spark reads entries without decoding them."""
        return self._shared()

    def _lookup(self, pool: Pool) -> Lookup:
        self._hosts = Hosts(self._url, self._random)
        if self._url.is_http:
            # The HTTP library takes a third of the client's loading time, and few service URLs need it.
            from magnetar.client.http_lookup import HttpLookup

            return HttpLookup(self._hosts, self._settings, self._authentication, self._tls)
        return BinaryLookup(self._hosts, pool, self._settings)

    async def _probe(self, url: ServiceUrl) -> bool:
        """Whether any host of a cluster takes a connection."""
        pool = self._shared().pool
        for address in url.addresses:
            try:
                await pool.connect(Way(address))
            except MagnetarError:
                continue
            return True
        return False

    def _switch(self, url: ServiceUrl) -> None:
        self._url = url
        self._hosts.switch(url)
        self._shared().pool.abandon_all(ConnectionLost(f"The client switches to {url.text}"))

    async def _tell_statistics(self) -> None:
        while True:
            await asyncio.sleep(self._settings.stats_interval_in_seconds)
            for part in list(self._open):
                if not isinstance(part, TableView):
                    _log.info("%s: %s", part.topic(), part.statistics())

    # --- producers -------------------------------------------------------------------------------

    @overload
    async def create_producer(self, topic: str, **options: Unpack[ProducerKeywords]) -> Producer[bytes]: ...
    @overload
    async def create_producer(
        self, topic: str, *, schema: Schema[T], **options: Unpack[ProducerKeywords]
    ) -> Producer[T]: ...
    async def create_producer(
        self, topic: str, *, schema: Schema[Any] = BYTES, **options: Unpack[ProducerKeywords]
    ) -> Producer[Any]:
        """A producer, attached to its topic. Raises TopicNotFound, ProducerBusy, ProducerFenced, IncompatibleSchema,
        NotAuthorized, TimedOut, BadSetting, BadName.
        """
        return await self.open_producer(topic, ProducerOptions(**options), schema)

    async def open_producer(self, topic: str, options: ProducerOptions, schema: Schema[T]) -> Producer[T]:
        """As create_producer, for who has the options as a whole."""
        core = self._shared()
        name = TopicName.parse(topic)
        await self._bind(schema, name)
        partitions = 0 if name.is_partition else await core.partitions_of(name)
        producer = Producer(core, name, options, schema, partitions)
        await producer.open()
        return self._own(producer)

    async def _bind(self, schema: Schema[Any], topic: TopicName) -> None:
        """Schemas that follow the topic's own ask for it."""
        core = self._shared()

        async def fetch(version: bytes | None) -> Any:
            return await core.retried(lambda: core.lookup.schema(topic, version))

        await schema.bind(fetch)

    # --- consumers -------------------------------------------------------------------------------

    @overload
    async def subscribe(
        self,
        topic: "str | Sequence[str] | re.Pattern[str]",
        subscription_name: str,
        *,
        message_listener: "Listener[bytes] | None" = None,
        **options: Unpack[ConsumerKeywords],
    ) -> Consumer[bytes]: ...
    @overload
    async def subscribe(
        self,
        topic: "str | Sequence[str] | re.Pattern[str]",
        subscription_name: str,
        *,
        schema: Schema[T],
        message_listener: "Listener[T] | None" = None,
        **options: Unpack[ConsumerKeywords],
    ) -> Consumer[T]: ...
    async def subscribe(
        self,
        topic: "str | Sequence[str] | re.Pattern[str]",
        subscription_name: str,
        *,
        schema: Schema[Any] = BYTES,
        message_listener: "Listener[Any] | None" = None,
        **options: Unpack[ConsumerKeywords],
    ) -> Consumer[Any]:
        """A consumer of a topic, of several, or of all topics that match a pattern. Raises ConsumerBusy and what
        create_producer raises.
        """
        return await self.open_consumer(topic, subscription_name, ConsumerOptions(**options), schema, message_listener)

    async def open_consumer(
        self,
        topic: "str | Sequence[str] | re.Pattern[str] | TopicPattern",
        subscription: str,
        options: ConsumerOptions,
        schema: Schema[T],
        listener: "Listener[T] | None" = None,
    ) -> Consumer[T]:
        """As subscribe, for who has the options as a whole."""
        core = self._shared()
        check_subscription(subscription)
        tasks = Tasks(f"consumer {subscription}", lambda name, error: _log.error("%s ended: %s", name, error))
        dead_letters: DeadLetters | None = None
        names: list[TopicName] = []
        pattern: TopicPattern | None = None
        if isinstance(topic, re.Pattern):
            pattern = TopicPattern(topic, options.regex_subscription_mode)
        elif isinstance(topic, TopicPattern):
            pattern = topic
        else:
            names = [TopicName.parse(one) for one in ([topic] if isinstance(topic, str) else topic)]
            if not names:
                raise BadSetting("there is no topic to subscribe to")
            await self._bind(schema, names[0])
        if options.dead_letter_policy is not None or options.retry_enabled:
            if not names:
                raise BadSetting("dead and retry letters need topics by name: their own are named after them")
            policy = policy_with_names(options.dead_letter_policy, names[0], subscription)
            dead_letters = DeadLetters(core, policy, subscription, self._letter_producer, tasks)
            if options.retry_enabled and policy.retry_letter_topic is not None:
                names.append(TopicName.parse(policy.retry_letter_topic))
        topics = TopicSet(
            core, names, tasks, pattern=pattern, discovery_interval_s=float(options.pattern_auto_discovery_period)
        )
        consumer = Consumer(core, topics, subscription, options, schema, dead_letters, tasks, listener)
        await consumer.open()
        return self._own(consumer)

    async def _letter_producer(self, topic: str, options: ProducerOptions) -> Producer[bytes]:
        return await self.open_producer(topic, options, BYTES)

    # --- readers ---------------------------------------------------------------------------------

    @overload
    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        *,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        reader_listener: "Listener[bytes] | None" = None,
        **options: Unpack[ConsumerKeywords],
    ) -> Reader[bytes]: ...
    @overload
    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        *,
        schema: Schema[T],
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        reader_listener: "Listener[T] | None" = None,
        **options: Unpack[ConsumerKeywords],
    ) -> Reader[T]: ...
    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        *,
        schema: Schema[Any] = BYTES,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        reader_listener: "Listener[Any] | None" = None,
        **options: Unpack[ConsumerKeywords],
    ) -> Reader[Any]:
        """A reader that begins after a message id, or with it if `start_message_id_inclusive`."""
        subscription = reader_subscription(subscription_role_prefix, self._random.getrandbits(40))
        if reader_name is not None:
            options["consumer_name"] = reader_name
        options["consumer_type"] = ConsumerType.Exclusive
        settled = ConsumerOptions(durable=False, start_message_id=start_message_id, **options)
        return Reader(await self.open_consumer(topic, subscription, settled, schema, reader_listener))

    @overload
    async def create_table_view(self, topic: str, subscription_name: str | None = None) -> TableView[bytes]: ...
    @overload
    async def create_table_view(
        self, topic: str, subscription_name: str | None = None, *, schema: Schema[T]
    ) -> TableView[T]: ...
    async def create_table_view(
        self, topic: str, subscription_name: str | None = None, *, schema: Schema[Any] = BYTES
    ) -> TableView[Any]:
        """The latest value of each key, complete up to now when this returns, and followed from then on."""
        reader: Reader[Any] = await self.create_reader(
            topic,
            EARLIEST_MESSAGE,
            schema=schema,
            subscription_role_prefix=subscription_name,
            is_read_compacted=TopicName.parse(topic).is_persistent,
        )
        tasks = Tasks(f"table view {topic}", lambda name, error: _log.error("%s ended: %s", name, error))
        view: TableView[Any] = TableView(reader, tasks)
        await view.open()
        return self._own(view)

    # --- transactions ------------------------------------------------------------------------------

    async def new_transaction(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Transaction:
        """Begin a transaction; the coordinator aborts it if it is not ended in time."""
        core = self._shared()
        if self._coordinators is None:
            self._coordinators = Coordinators(core)
        return await self._coordinators.begin(timeout_ms)

    def transaction(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> "TransactionScope":
        """`async with client.transaction() as txn`: commits at the end, aborts on an error."""
        return TransactionScope(self, timeout_ms)

    # --- questions -----------------------------------------------------------------------------------

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Names of the partitions; the topic itself if it has none."""
        name = TopicName.parse(topic)
        count = await self._shared().partitions_of(name)
        return [str(name.partition(index)) for index in range(count)] if count else [str(name)]

    @property
    def service_url(self) -> str:
        return self._url.text

    def _own(self, part: Part) -> Part:
        """Keep what was made until it is closed, by whomever."""
        self._open[part] = None
        part.on_closed = lambda: self._open.pop(part, None)
        return part

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def open_parts(self) -> int:
        """How many producers, consumers, readers and table views are open now."""
        return len(self._open)

    def push(self) -> None:
        """Send now what is collected to be sent together: batches, and groups of acknowledgements."""
        for part in self._open:
            if not isinstance(part, TableView):
                part.push()

    @property
    def sockets(self) -> list[asyncio.Transport]:
        """The transports of the connections that are open now."""
        found = self._core.pool.connections if self._core is not None else []
        return [connection.transport for connection in found if connection.transport is not None]

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._core.pool.connections) if self._core is not None else 0

    # --- the end -------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all that was made from it, in order of making, then the connections."""
        if self._closed:
            return
        self._closed = True
        try:
            for part in list(self._open):
                try:
                    await part.close()
                except MagnetarError as error:
                    _log.warning("closing: %s", error)
        finally:
            self._open.clear()
            if self._core is not None:
                await self._core.pool.close()
                await self._core.lookup.close()
                await self._core.tasks.close()
            if self._authentication is not None:
                await self._authentication.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class TransactionScope:
    """A transaction that begins when it is entered."""

    def __init__(self, client: Client, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        self._transaction = await self._client.new_transaction(self._timeout_ms)
        return self._transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._transaction is not None
        await self._transaction.__aexit__(kind, error, traceback)
