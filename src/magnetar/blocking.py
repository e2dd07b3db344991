# SPDX-License-Identifier: Apache-2.0
"""The client for programs that block, with the names of the official Python client: moving is a matter of imports.

Each `Client` runs the asyncio client on one background thread. Methods may be called from any thread; callbacks and
listeners run on the client's thread and must not wait for it. Never usable in the child of a fork that did not make it.
Carries.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from magnetar.client.authentication import Authentication
from magnetar.client.client import Client as AsyncClient
from magnetar.client.consumer import Consumer as AsyncConsumer
from magnetar.client.failover import AutoClusterFailover
from magnetar.client.keywords import ClientKeywords, ConsumerKeywords, ProducerKeywords
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.options import BatchReceivePolicy
from magnetar.client.producer import Producer as AsyncProducer
from magnetar.client.reader import Reader as AsyncReader
from magnetar.client.receipt import Receipt
from magnetar.client.schema import BYTES, Schema
from magnetar.client.table_view import TableView as AsyncTableView
from magnetar.client.transaction import DEFAULT_TIMEOUT_MS
from magnetar.client.transaction import Transaction as AsyncTransaction
from magnetar.errors import MagnetarError
from magnetar.runtime.loop_thread import LoopThread

T = TypeVar("T")
SendCallback = Callable[[MagnetarError | None, MessageId | None], object]


class Client:
    """`with Client("pulsar://localhost:6650") as client`."""

    def __init__(
        self,
        service_url: str | AutoClusterFailover,
        authentication: Authentication | None = None,
        **settings: Unpack[ClientKeywords],
    ) -> None:
        self._client = AsyncClient(service_url, authentication, **settings)
        self._thread = LoopThread("magnetar-client")
        self._owns_thread = True

    @classmethod
    def on(cls, thread: LoopThread, client: AsyncClient) -> "Client":
        """A client on a thread that others use too, and that stays when the client is closed."""
        made = cls.__new__(cls)
        made._client, made._thread, made._owns_thread = client, thread, False
        return made

    @overload
    def create_producer(self, topic: str, **options: Unpack[ProducerKeywords]) -> "Producer[bytes]": ...
    @overload
    def create_producer(
        self, topic: str, *, schema: Schema[T], **options: Unpack[ProducerKeywords]
    ) -> "Producer[T]": ...
    def create_producer(
        self, topic: str, *, schema: Schema[Any] = BYTES, **options: Unpack[ProducerKeywords]
    ) -> "Producer[Any]":
        return Producer(self._thread, self._thread.run(self._client.create_producer(topic, schema=schema, **options)))

    @overload
    def subscribe(
        self,
        topic: "str | Sequence[str] | re.Pattern[str]",
        subscription_name: str,
        *,
        message_listener: "Callable[[Consumer[bytes], Message[bytes]], object] | None" = None,
        **options: Unpack[ConsumerKeywords],
    ) -> "Consumer[bytes]": ...
    @overload
    def subscribe(
        self,
        topic: "str | Sequence[str] | re.Pattern[str]",
        subscription_name: str,
        *,
        schema: Schema[T],
        message_listener: "Callable[[Consumer[T], Message[T]], object] | None" = None,
        **options: Unpack[ConsumerKeywords],
    ) -> "Consumer[T]": ...
    def subscribe(
        self,
        topic: "str | Sequence[str] | re.Pattern[str]",
        subscription_name: str,
        *,
        schema: Schema[Any] = BYTES,
        message_listener: "Callable[[Consumer[Any], Message[Any]], object] | None" = None,
        **options: Unpack[ConsumerKeywords],
    ) -> "Consumer[Any]":
        """`message_listener(consumer, message)` is called on the client's thread; acknowledging there never waits."""
        faces: dict[AsyncConsumer[Any], Consumer[Any]] = {}

        def listen(inner: AsyncConsumer[Any], message: Message[Any]) -> None:
            assert message_listener is not None
            face = faces.get(inner)
            if face is None:
                face = faces[inner] = Consumer(self._thread, inner)
            message_listener(face, message)

        listener = listen if message_listener is not None else None
        consumer: AsyncConsumer[Any] = self._thread.run(
            self._client.subscribe(topic, subscription_name, schema=schema, message_listener=listener, **options)
        )
        return faces.setdefault(consumer, Consumer(self._thread, consumer))

    @overload
    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        *,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> "Reader[bytes]": ...
    @overload
    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        *,
        schema: Schema[T],
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> "Reader[T]": ...
    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        *,
        schema: Schema[Any] = BYTES,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> "Reader[Any]":
        reader: AsyncReader[Any] = self._thread.run(
            self._client.create_reader(
                topic,
                start_message_id,
                schema=schema,
                reader_name=reader_name,
                subscription_role_prefix=subscription_role_prefix,
                **options,
            )
        )
        return Reader(self._thread, reader)

    @overload
    def create_table_view(self, topic: str, subscription_name: str | None = None) -> "TableView[bytes]": ...
    @overload
    def create_table_view(
        self, topic: str, subscription_name: str | None = None, *, schema: Schema[T]
    ) -> "TableView[T]": ...
    def create_table_view(
        self, topic: str, subscription_name: str | None = None, *, schema: Schema[Any] = BYTES
    ) -> "TableView[Any]":
        view: AsyncTableView[Any] = self._thread.run(
            self._client.create_table_view(topic, subscription_name, schema=schema)
        )
        return TableView(self._thread, view)

    def new_transaction(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> "Transaction":
        return Transaction(self._thread, self._thread.run(self._client.new_transaction(timeout_ms)))

    transaction = new_transaction

    def get_topic_partitions(self, topic: str) -> list[str]:
        return self._thread.run(self._client.get_topic_partitions(topic))

    def close(self) -> None:
        """Close everything made from it, and end its thread."""
        if self._thread.is_here and not self._thread.is_closed:
            try:
                self._thread.run(self._client.close())
            finally:
                if self._owns_thread:
                    self._thread.close()

    shutdown = close

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Producer(Generic[T]):
    def __init__(self, thread: LoopThread, producer: AsyncProducer[T]) -> None:
        self._thread = thread
        self._producer = producer
        producer.take_no_turns()

    def send(
        self,
        content: T | None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        txn: "Transaction | None" = None,
    ) -> MessageId:
        """Send and wait until the message is durable."""
        return self._thread.run(
            self._producer.send(
                content,
                properties,
                partition_key,
                ordering_key,
                sequence_id,
                replication_clusters,
                disable_replication,
                event_timestamp,
                deliver_at,
                deliver_after,
                None if txn is None else txn.inner,
            )
        )

    def send_async(
        self,
        content: T | None,
        callback: SendCallback | None = None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        """Wait for room in the queue only; `callback(error, message_id)` is called on the client's thread."""

        async def submit() -> None:
            receipt = await self._producer.submit(
                content,
                properties,
                partition_key,
                ordering_key,
                sequence_id,
                replication_clusters,
                disable_replication,
                event_timestamp,
                deliver_at,
                deliver_after,
            )
            if callback is not None:
                # Before anything else happens on the thread: callbacks come in the order of the messages.
                receipt.add_done_callback(lambda done: _tell(callback, done))

        self._thread.run(submit())

    def flush(self) -> None:
        self._thread.run(self._producer.flush())

    def topic(self) -> str:
        return self._producer.topic()

    def producer_name(self) -> str:
        return self._producer.producer_name()

    def last_sequence_id(self) -> int:
        return self._producer.last_sequence_id()

    def is_connected(self) -> bool:
        return self._thread.is_here and self._producer.is_connected()

    def close(self) -> None:
        self._thread.run(self._producer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _tell(callback: SendCallback, receipt: Receipt) -> None:
    error = receipt.exception()
    if error is None:
        callback(None, receipt.result())
    else:
        callback(error if isinstance(error, MagnetarError) else MagnetarError(str(error)), None)


class Consumer(Generic[T]):
    """`for message in consumer` ends when the consumer is closed."""

    def __init__(self, thread: LoopThread, consumer: AsyncConsumer[T]) -> None:
        self._thread = thread
        self._consumer = consumer

    def receive(self, timeout_millis: int | None = None) -> Message[T]:
        return self._thread.run(self._consumer.receive(timeout_millis))

    def batch_receive(self, policy: BatchReceivePolicy | None = None) -> list[Message[T]]:
        return self._thread.run(self._consumer.batch_receive(policy))

    def acknowledge(
        self,
        message: "Message[Any] | MessageId | Iterable[Message[Any] | MessageId]",
        txn: "Transaction | None" = None,
    ) -> None:
        self._run(self._consumer.acknowledge(message, None if txn is None else txn.inner))

    def acknowledge_cumulative(self, message: "Message[Any] | MessageId", txn: "Transaction | None" = None) -> None:
        self._run(self._consumer.acknowledge_cumulative(message, None if txn is None else txn.inner))

    def _run(self, coroutine: Any) -> None:
        """Wait, unless this is a listener on the client's own thread: then it is done in the background."""
        if self._thread.is_current:
            self._thread.start(coroutine)
        else:
            self._thread.run(coroutine)

    def negative_acknowledge(self, message: "Message[Any] | MessageId") -> None:
        self._thread.call(lambda: self._consumer.negative_acknowledge(message))

    def reconsume_later(
        self, message: Message[Any], delay: timedelta | int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        self._run(self._consumer.reconsume_later(message, delay, properties))

    def redeliver_unacknowledged_messages(self) -> None:
        self._thread.call(self._consumer.redeliver_unacknowledged_messages)

    def seek(self, target: "MessageId | int | datetime | Callable[[str], MessageId | int]") -> None:
        self._thread.run(self._consumer.seek(target))

    def unsubscribe(self, force: bool = False) -> None:
        self._thread.run(self._consumer.unsubscribe(force=force))

    def get_last_message_id(self) -> MessageId:
        return self._thread.run(self._consumer.get_last_message_id())

    def pause(self) -> None:
        self._thread.call(self._consumer.pause)

    def resume(self) -> None:
        self._thread.call(self._consumer.resume)

    def pause_message_listener(self) -> None:
        self._thread.call(self._consumer.pause_message_listener)

    def resume_message_listener(self) -> None:
        self._thread.call(self._consumer.resume_message_listener)

    def topic(self) -> str:
        return self._consumer.topic()

    def subscription_name(self) -> str:
        return self._consumer.subscription_name()

    def consumer_name(self) -> str:
        return self._consumer.consumer_name()

    def is_connected(self) -> bool:
        return self._thread.is_here and self._consumer.is_connected()

    def close(self) -> None:
        self._thread.run(self._consumer.close())

    def __iter__(self) -> Iterator[Message[T]]:
        while True:
            try:
                yield self._thread.run(self._consumer.__anext__())
            except StopAsyncIteration:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Reader(Generic[T]):
    def __init__(self, thread: LoopThread, reader: AsyncReader[T]) -> None:
        self._thread = thread
        self._reader = reader

    def read_next(self, timeout_millis: int | None = None) -> Message[T]:
        return self._thread.run(self._reader.read_next(timeout_millis))

    def has_message_available(self) -> bool:
        return self._thread.run(self._reader.has_message_available())

    def seek(self, target: "MessageId | int | datetime") -> None:
        self._thread.run(self._reader.seek(target))

    def topic(self) -> str:
        return self._reader.topic()

    def is_connected(self) -> bool:
        return self._thread.is_here and self._reader.is_connected()

    def close(self) -> None:
        self._thread.run(self._reader.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class TableView(Generic[T]):
    def __init__(self, thread: LoopThread, view: AsyncTableView[T]) -> None:
        self._thread = thread
        self._view = view

    def get(self, key: str, default: T | None = None) -> T | None:
        return self._view.get(key, default)

    def for_each(self, action: Callable[[str, T], object]) -> None:
        self._thread.call(lambda: self._view.for_each(action))

    def for_each_and_listen(self, action: Callable[[str, T | None], object]) -> None:
        self._thread.call(lambda: self._view.for_each_and_listen(action))

    def refresh(self) -> None:
        self._thread.run(self._view.refresh())

    def __contains__(self, key: object) -> bool:
        return key in self._view

    def __len__(self) -> int:
        return len(self._view)

    def close(self) -> None:
        self._thread.run(self._view.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Transaction:
    """`with client.transaction() as txn`: commits at the end, aborts on an error."""

    def __init__(self, thread: LoopThread, transaction: AsyncTransaction) -> None:
        self._thread = thread
        self.inner = transaction

    def commit(self) -> None:
        self._thread.run(self.inner.commit())

    def abort(self) -> None:
        self._thread.run(self.inner.abort())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.run(self.inner.__aexit__(kind, error, traceback))
