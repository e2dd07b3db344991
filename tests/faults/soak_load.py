# SPDX-License-Identifier: Apache-2.0
"""The load of a soak: producers and consumers of every subscription type, official and our own, each in a thread.

Consumers of types that several may share leave and come back when told. Everything that was sent, acknowledged or
received is written down in the history.
"""

import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pulsar

from magnetar import BatchingType as OwnBatching
from magnetar import ConsumerType as OwnType
from magnetar import InitialPosition as OwnPosition
from magnetar.blocking import Client as OwnClient
from magnetar.errors import MagnetarError, TimedOut
from magnetar.ids import MessageId
from tests.faults.soak_history import ONCE_TOPIC, TOPIC, History, Kind, Sender, Subscription, key_of

# It says a line for each connection that is refused, which is what a soak is about.
_QUIET = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
_RECEIVE_MS = 500
_IN_FLIGHT_MAX = 200
_REFUSED_EVERY = 50
_AGAIN_S = 0.1
_RETURN_LIMIT_S = 180.0
_ERRORS = (pulsar.PulsarException, MagnetarError)
_NOTHING_CAME = (pulsar.Timeout, TimedOut)


class Worker(ABC):
    """One thread that runs a loop until it is told to stop."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.stopping = threading.Event()
        self._history = history
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def join(self, limit_s: float) -> None:
        self._thread.join(limit_s)
        if self._thread.is_alive():
            self.failure = TimeoutError(f"{self.name} does not end")

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def run(self) -> None:
        """Until `stopping` is set."""


class OfficialProducer(Worker):
    """Sends for ever; what fails is sent by the client again, because it never times out."""

    def __init__(self, name: str, client: pulsar.Client, history: History, sender: Sender, pause_s: float) -> None:
        super().__init__(name, history)
        history.senders[name] = sender
        self._pause_s = pause_s
        self._producer = client.create_producer(
            sender.topic,
            producer_name=name,
            send_timeout_millis=0,
            block_if_queue_full=True,
            max_pending_messages=_IN_FLIGHT_MAX,
            batching_enabled=sender.is_batched,
            batching_type=pulsar.BatchingType.KeyBased,
        )

    def run(self) -> None:
        while not self.stopping.wait(self._pause_s):
            name = self._history.next_name(self.name)
            self._producer.send_async(name.encode(), self._told(name), partition_key=key_of(name))
        self._producer.flush()

    def _told(self, name: str) -> Callable[[pulsar.Result, Any], None]:
        def on_receipt(result: pulsar.Result, message_id: Any) -> None:
            if result == pulsar.Result.Ok:
                self._history.acknowledge(name)
            else:
                self._history.fail(name, str(result))

        return on_receipt


class OwnProducer(Worker):
    """Our own client: one message at a time, or many in flight and in batches; each tried until it is acknowledged."""

    def __init__(self, name: str, client: OwnClient, history: History, sender: Sender, pause_s: float) -> None:
        super().__init__(name, history)
        history.senders[name] = sender
        self._pause_s = pause_s
        self._waits = not sender.is_batched
        self._producer = client.create_producer(
            sender.topic,
            producer_name=name,
            send_timeout_millis=0,
            block_if_queue_full=True,
            max_pending_messages=_IN_FLIGHT_MAX,
            batching_enabled=sender.is_batched,
            batching_type=OwnBatching.KeyBased,
        )

    def run(self) -> None:
        while not self.stopping.wait(self._pause_s):
            name = self._history.next_name(self.name)
            if self._waits:
                self._producer.send(name.encode(), partition_key=key_of(name))
                self._history.acknowledge(name)
            else:
                self._producer.send_async(name.encode(), self._told(name), partition_key=key_of(name))
        self._producer.flush()

    def _told(self, name: str) -> Callable[[MagnetarError | None, MessageId | None], None]:
        def on_receipt(error: MagnetarError | None, message_id: MessageId | None) -> None:
            if error is None:
                self._history.acknowledge(name)
            else:
                self._history.fail(name, f"{type(error).__name__}: {error}")

        return on_receipt


class Consumer(Worker):
    """Receives and acknowledges; where order is not promised, one in fifty is refused first and comes again."""

    def __init__(self, name: str, subscription: str, history: History, opened: Callable[[], Any]) -> None:
        super().__init__(name, history)
        self.subscription = subscription
        self.kind = history.subscriptions[subscription].kind
        history.subscriptions[subscription].consumers.append(name)
        self._opened = opened
        self._consumer = opened()
        self._leaving = threading.Event()
        self._is_away = threading.Event()
        self._may_return = threading.Event()
        self._is_back = threading.Event()

    def leave(self, until: Callable[[], object]) -> None:
        """Close, wait for `until`, subscribe again."""
        for each in (self._is_away, self._may_return, self._is_back):
            each.clear()
        self._leaving.set()
        try:
            assert self._is_away.wait(_RETURN_LIMIT_S), f"{self.name} does not leave"
            until()
        finally:
            self._may_return.set()
        assert self._is_back.wait(_RETURN_LIMIT_S), f"{self.name} does not come back"

    def run(self) -> None:
        count = 0
        while not self.stopping.is_set():
            try:
                if self._leaving.is_set():
                    self._leave_and_return()
                message = self._next()
                if message is None:
                    continue
                count += 1
                name = sys.intern(message.data().decode())
                if count % _REFUSED_EVERY == 0 and self.kind is Kind.SHARED:
                    self._history.refuse(self.subscription, name)
                    self._consumer.negative_acknowledge(message)
                    continue
                self._history.take(self.subscription, name, self.name)
                self._consumer.acknowledge(message)
            except _ERRORS as error:
                self._history.stumble(self.name, error)
                self.stopping.wait(_AGAIN_S)

    def _next(self) -> Any:
        try:
            return self._consumer.receive(_RECEIVE_MS)
        except _NOTHING_CAME:
            return None

    def _leave_and_return(self) -> None:
        self._leaving.clear()
        try:
            self._consumer.close()
        except _ERRORS as error:
            self._history.stumble(self.name, error)
        self._is_away.set()
        self._may_return.wait()
        while not self.stopping.is_set():
            try:
                self._consumer = self._opened()
                break
            except _ERRORS as error:
                self._history.stumble(self.name, error)
                self.stopping.wait(_AGAIN_S)
        self._is_back.set()


def official_client(url: str) -> pulsar.Client:
    return pulsar.Client(url, operation_timeout_seconds=120, logger=_QUIET)


def producers(official: pulsar.Client, own: OwnClient, history: History) -> list[Worker]:
    """One message at a time and many in batches, from both clients; and both where the broker deduplicates."""

    def once(is_batched: bool) -> Sender:
        return Sender(ONCE_TOPIC, is_deduplicated=True, is_batched=is_batched)

    return [
        OfficialProducer("official", official, history, Sender(), 0.006),
        OfficialProducer("official-batched", official, history, Sender(is_batched=True), 0.004),
        OwnProducer("own", own, history, Sender(), 0.006),
        OwnProducer("own-batched", own, history, Sender(is_batched=True), 0.004),
        OfficialProducer("official-once", official, history, once(False), 0.02),
        OwnProducer("own-once", own, history, once(True), 0.02),
    ]


def consumers(official: pulsar.Client, own: OwnClient, history: History) -> list[Consumer]:
    """Every subscription type, with several consumers where it may have them, of both clients."""
    subscriptions = {
        "exclusive": (Kind.EXCLUSIVE, 1, 0),
        "own-exclusive": (Kind.EXCLUSIVE, 0, 1),
        "failover": (Kind.FAILOVER, 1, 1),
        "shared": (Kind.SHARED, 2, 1),
        "key-shared": (Kind.KEY_SHARED, 2, 1),
    }
    made: list[Consumer] = []
    for subscription, (kind, official_count, own_count) in subscriptions.items():
        history.subscriptions[subscription] = Subscription(kind)
        for number in range(official_count):
            name = f"{subscription}-official-{number}"
            made.append(Consumer(name, subscription, history, _official(official, subscription, kind, name)))
        for number in range(own_count):
            name = f"{subscription}-own-{number}"
            made.append(Consumer(name, subscription, history, _own(own, subscription, kind, name)))
    return made


def _official(client: pulsar.Client, subscription: str, kind: Kind, name: str) -> Callable[[], Any]:
    types = {
        Kind.EXCLUSIVE: pulsar.ConsumerType.Exclusive,
        Kind.FAILOVER: pulsar.ConsumerType.Failover,
        Kind.SHARED: pulsar.ConsumerType.Shared,
        Kind.KEY_SHARED: pulsar.ConsumerType.KeyShared,
    }
    return lambda: client.subscribe(
        TOPIC,
        subscription,
        consumer_type=types[kind],
        consumer_name=name,
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=500,
    )


def _own(client: OwnClient, subscription: str, kind: Kind, name: str) -> Callable[[], Any]:
    types = {
        Kind.EXCLUSIVE: OwnType.Exclusive,
        Kind.FAILOVER: OwnType.Failover,
        Kind.SHARED: OwnType.Shared,
        Kind.KEY_SHARED: OwnType.KeyShared,
    }
    return lambda: client.subscribe(
        TOPIC,
        subscription,
        consumer_type=types[kind],
        consumer_name=name,
        initial_position=OwnPosition.Earliest,
        negative_ack_redelivery_delay_ms=500,
    )
