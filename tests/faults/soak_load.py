# SPDX-License-Identifier: Apache-2.0
"""The load of a soak: producers and consumers of every subscription type, official and our own, each in a thread.

Everything that was sent, acknowledged or received is written down here and nowhere else; `soak_checks.py` judges it.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import pulsar

from magnetar import ConsumerType as OwnType
from magnetar import InitialPosition as OwnPosition
from magnetar.blocking import Client as OwnClient
from magnetar.errors import MagnetarError

TOPIC = "persistent://public/default/soak"
# It says a line for each connection that is refused, which is what a soak is about.
_QUIET = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
_KEYS = 16
_RECEIVE_MS = 500
_IN_FLIGHT_MAX = 200


class Taken(NamedTuple):
    name: str
    key: str
    consumer: str


class History:
    """Who sent what in which order, what was acknowledged, and what each subscription's consumers took, in order."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: dict[str, list[str]] = defaultdict(list)
        self.acknowledged: dict[str, None] = {}
        self.taken: dict[str, list[Taken]] = defaultdict(list)
        self.errors: dict[str, int] = defaultdict(int)
        self._last_receipt_s = time.monotonic()
        self._longest_pause_s = 0.0

    def acknowledge(self, name: str) -> None:
        now_s = time.monotonic()
        with self.lock:
            self.acknowledged[name] = None
            self._longest_pause_s = max(self._longest_pause_s, now_s - self._last_receipt_s)
            self._last_receipt_s = now_s

    def take_pause_s(self) -> float:
        """The longest time without any receipt since this was last asked; one that has not ended yet counts."""
        with self.lock:
            longest = max(self._longest_pause_s, time.monotonic() - self._last_receipt_s)
            self._longest_pause_s = 0.0
            return longest

    def counts(self) -> tuple[int, int, int]:
        with self.lock:
            sent = sum(map(len, self.sent.values()))
            return sent, len(self.acknowledged), sum(map(len, self.taken.values()))


class Worker(ABC):
    """One thread that runs a loop until it is told to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopping = threading.Event()
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

    def __init__(self, name: str, client: pulsar.Client, history: History, pause_s: float) -> None:
        super().__init__(name)
        self._history = history
        self._pause_s = pause_s
        self._producer = client.create_producer(
            TOPIC,
            producer_name=name,
            send_timeout_millis=0,
            block_if_queue_full=True,
            max_pending_messages=_IN_FLIGHT_MAX,
            batching_enabled=name.endswith("batched"),
            batching_type=pulsar.BatchingType.KeyBased,
        )

    def run(self) -> None:
        sent = self._history.sent[self.name]
        while not self.stopping.wait(self._pause_s):
            name = f"{self.name}:{len(sent)}"
            sent.append(name)
            self._producer.send_async(name.encode(), self._told(name), partition_key=key_of(name))
        self._producer.flush()

    def _told(self, name: str) -> Callable[[pulsar.Result, Any], None]:
        def on_receipt(result: pulsar.Result, message_id: Any) -> None:
            if result == pulsar.Result.Ok:
                self._history.acknowledge(name)
            else:
                with self._history.lock:
                    self._history.errors[f"{self.name}: {result}"] += 1

        return on_receipt


class OwnProducer(Worker):
    """Our own client, one message at a time, each tried until it is acknowledged."""

    def __init__(self, name: str, client: OwnClient, history: History, pause_s: float) -> None:
        super().__init__(name)
        self._history = history
        self._pause_s = pause_s
        self._producer = client.create_producer(TOPIC, producer_name=name, send_timeout_millis=0)

    def run(self) -> None:
        sent = self._history.sent[self.name]
        while not self.stopping.wait(self._pause_s):
            name = f"{self.name}:{len(sent)}"
            sent.append(name)
            self._producer.send(name.encode(), partition_key=key_of(name))
            self._history.acknowledge(name)


class Consumer(Worker):
    """Receives and acknowledges; where order is not promised, one in fifty is refused first and comes again."""

    def __init__(
        self, name: str, subscription: str, history: History, consumer: Any, errors: tuple[type[Exception], ...]
    ) -> None:
        super().__init__(name)
        self._subscription = subscription
        self._history = history
        self._consumer = consumer
        self._errors = errors

    def run(self) -> None:
        taken = self._history.taken[self._subscription]
        count = 0
        while not self.stopping.is_set():
            try:
                message = self._consumer.receive(_RECEIVE_MS)
                count += 1
                if count % 50 == 0 and self._subscription == "shared":
                    self._consumer.negative_acknowledge(message)
                    continue
                name = message.data().decode()
                with self._history.lock:
                    taken.append(Taken(name, key_of(name), self.name))
                self._consumer.acknowledge(message)
            except self._errors:
                continue


def key_of(name: str) -> str:
    producer, _, number = name.rpartition(":")
    return f"{producer}/{int(number) % _KEYS}"


def official_client(url: str) -> pulsar.Client:
    return pulsar.Client(url, operation_timeout_seconds=120, logger=_QUIET)


def consumers(official: pulsar.Client, own: OwnClient, history: History) -> list[Consumer]:
    """Every subscription type, with as many consumers as it may have, of both clients."""
    kinds = {
        "exclusive": (pulsar.ConsumerType.Exclusive, OwnType.Exclusive, 1, 0),
        "failover": (pulsar.ConsumerType.Failover, OwnType.Failover, 1, 1),
        "shared": (pulsar.ConsumerType.Shared, OwnType.Shared, 2, 1),
        "key-shared": (pulsar.ConsumerType.KeyShared, OwnType.KeyShared, 1, 1),
        "own-exclusive": (pulsar.ConsumerType.Exclusive, OwnType.Exclusive, 0, 1),
    }
    made: list[Consumer] = []
    for name, (official_type, own_type, official_count, own_count) in kinds.items():
        for number in range(official_count):
            consumer = official.subscribe(
                TOPIC,
                name,
                consumer_type=official_type,
                initial_position=pulsar.InitialPosition.Earliest,
                negative_ack_redelivery_delay_ms=500,
            )
            made.append(Consumer(f"{name}-official-{number}", name, history, consumer, (pulsar.PulsarException,)))
        for number in range(own_count):
            own_consumer = own.subscribe(
                TOPIC,
                name,
                consumer_type=own_type,
                initial_position=OwnPosition.Earliest,
                negative_ack_redelivery_delay_ms=500,
            )
            made.append(Consumer(f"{name}-own-{number}", name, history, own_consumer, (MagnetarError,)))
    return made
