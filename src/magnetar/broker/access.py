# SPDX-License-Identifier: Apache-2.0
"""Which producers a topic lets in: any number that share it, or one alone, and who waits to be that one.

Owns the exclusive holder, the queue behind it and the topic's epoch, which grows with every holder, so that one who was
displaced while it was away learns that it was. Never knows the topic's table of producers: `others` names those that
are in, without the newcomer and without the one that it replaces. The caller makes a new epoch durable before it
tells the holder, and asks `is_holder` afterwards: a fencing producer may have come meanwhile.

Invariants: while there is a holder no one else is let in; nobody waits while the topic is free.
Decides.
"""

from collections.abc import Collection
from enum import Enum

from magnetar.broker.producer import AccessMode, Producer
from magnetar.errors import ProducerBusy, ProducerFenced, TooManyRequests


class Admission(Enum):
    SHARED = "in, beside others"
    EXCLUSIVE = "in alone, once the epoch is durable"
    WAITING = "queued behind those that are in"


class ProducerAccess:
    __slots__ = ("_holder", "_waiting", "epoch", "waiting_max")

    def __init__(self, epoch: int | None, waiting_max: int) -> None:
        self.epoch = epoch
        self.waiting_max = waiting_max
        self._holder: Producer | None = None
        self._waiting: dict[Producer, None] = {}

    @property
    def holder(self) -> Producer | None:
        return self._holder

    @property
    def waiting(self) -> list[Producer]:
        return list(self._waiting)

    def is_holder(self, producer: Producer) -> bool:
        return self._holder is producer

    def ask(self, producer: Producer, others: Collection[Producer]) -> Admission:
        """Let a producer in, make it the holder, or queue it. ProducerBusy or ProducerFenced when it must go away."""
        mode = producer.access_mode
        if mode is AccessMode.SHARED:
            if self._holder is not None or self._waiting:
                raise ProducerBusy(f"Topic has an existing exclusive producer: {self._holder_name()}")
            return Admission.SHARED
        if mode is AccessMode.EXCLUSIVE:
            if self._holder is not None or self._waiting:
                raise ProducerFenced(f"Topic has an existing exclusive producer: {self._holder_name()}")
            if others:
                raise ProducerFenced("Topic has existing shared producers")
        self._check_epoch(producer)
        if mode is AccessMode.WAIT_FOR_EXCLUSIVE and (self._holder is not None or self._waiting or others):
            if len(self._waiting) >= self.waiting_max:
                raise TooManyRequests(f"{len(self._waiting)} producers wait for exclusive access already")
            self._waiting[producer] = None
            return Admission.WAITING
        if producer.topic_epoch is not None and self._holder is not None and self._holder.topic_epoch is None:
            # One that was shut out and comes back before the newcomer's epoch is durable is behind it all the same.
            raise ProducerFenced(f"Topic epoch is moving. Producer epoch: {producer.topic_epoch}")
        self._holder = producer
        return Admission.EXCLUSIVE

    def succeed(self, producer: Producer, old: Producer) -> None:
        """A client came back: its new registration takes the place of its old one before anyone else can."""
        if self._holder is old:
            self._check_epoch(producer)
            self._holder = producer

    def next_epoch(self, producer: Producer) -> int:
        """The epoch that this holder brings: its own when it comes back, else the next one."""
        if producer.topic_epoch is not None:
            return producer.topic_epoch
        return 0 if self.epoch is None else self.epoch + 1

    def drop_waiting(self) -> list[Producer]:
        """Empty the queue; a fencing producer has no one behind it."""
        dropped = list(self._waiting)
        self._waiting.clear()
        return dropped

    def leave(self, producer: Producer) -> None:
        self._waiting.pop(producer, None)
        if self._holder is producer:
            self._holder = None

    def promote(self, others: Collection[Producer]) -> Producer | None:
        """The next holder, once the topic is free; None while it is not, or when no one waits."""
        if self._holder is not None or others or not self._waiting:
            return None
        self._holder = next(iter(self._waiting))
        del self._waiting[self._holder]
        return self._holder

    def _holder_name(self) -> str:
        producer = self._holder or next(iter(self._waiting))
        return producer.name

    def _check_epoch(self, producer: Producer) -> None:
        if producer.topic_epoch is not None and self.epoch is not None and producer.topic_epoch < self.epoch:
            raise ProducerFenced(
                f"Topic epoch has already moved. Current epoch: {self.epoch}, Producer epoch: {producer.topic_epoch}"
            )
