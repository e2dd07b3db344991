# SPDX-License-Identifier: Apache-2.0
"""The producers of one topic: let in one by one, replaced by their own successors, sent away together.

Owns the table by name, and carries out what ProducerAccess decides: an exclusive producer is in only when the topic's
new epoch is durable. A name that is taken is given to a newcomer when its holder's client does not answer any more.
Never sees a message.

Invariant: a producer is in the table from when `add` returns until `remove`, and never after its client left.
Carries.
"""

import asyncio
from collections.abc import Awaitable, Callable

from magnetar.broker.access import Admission, ProducerAccess
from magnetar.broker.producer import AccessMode, Producer
from magnetar.broker.sheltered import sheltered
from magnetar.errors import MagnetarError, OwnerClosed, ProducerBusy, ProducerFenced
from magnetar.runtime.tasks import Tasks


class TopicProducers:
    def __init__(
        self,
        topic: str,
        access: ProducerAccess,
        tasks: Tasks,
        *,
        producers_max: int,
        check_open: Callable[[], None],
        save_epoch: Callable[[int], Awaitable[None]],
    ) -> None:
        self.by_name: dict[str, Producer] = {}
        self.access = access
        self.producers_max = producers_max
        self._topic = topic
        self._tasks = tasks
        self._check_open = check_open
        self._save_epoch = save_epoch
        self._epoch_turn: asyncio.Lock | None = None
        self._queue: dict[Producer, asyncio.Future[None]] = {}

    async def add(self, producer: Producer, on_waiting: Callable[[], None]) -> None:
        """Let a producer in; one that waits for exclusive access is told so at once and returns when it has it."""
        old = await self._predecessor(producer)
        self._check_open()
        if old is None and 0 < self.producers_max <= len(self.by_name):
            raise ProducerBusy(f"Topic '{self._topic}' reached max producers limit")
        try:
            admission = self._admit(producer, old)
            if admission is Admission.WAITING:
                on_waiting()
                await self._turn(producer)
            if admission is not Admission.SHARED:
                await sheltered(self._tasks, self._begin_epoch(producer), f"epoch of {self._topic}")
                self._check_open()
                if not self.access.is_holder(producer):
                    raise ProducerFenced("Fenced out by another exclusive producer")
        except BaseException:
            self.access.leave(producer)
            self._promote()
            raise
        self.by_name[producer.name] = producer

    def remove(self, producer: Producer) -> None:
        """The producer's client closed it or is gone; whoever waits for the topic may have it now."""
        producer.is_closed = True
        if self.by_name.get(producer.name) is producer:
            del self.by_name[producer.name]
        self.access.leave(producer)
        self._promote()

    def forget_waiting(self, producer: Producer) -> None:
        """A producer that waits for exclusive access does not want it any more."""
        self._fail_waiting(producer, OwnerClosed("The producer was closed while it waited for exclusive access"))

    def send_away(self, error: MagnetarError) -> None:
        """The topic closes: clients look it up again."""
        for producer in self.access.drop_waiting():
            self._fail_waiting(producer, error)
        for producer in list(self.by_name.values()):
            self._disconnect(producer)

    # --- inside -------------------------------------------------------------------------------------

    async def _predecessor(self, producer: Producer) -> Producer | None:
        """Who has the name and must give it up. ProducerBusy when that one is there and is someone else."""
        while (old := self.by_name.get(producer.name)) is not None:
            if producer.may_replace(old):
                return old
            if old.link is producer.link or await old.link.is_alive():
                raise ProducerBusy(f"Producer with name '{producer.name}' is already connected to topic")
            self.remove(old)
        return None

    def _admit(self, producer: Producer, old: Producer | None) -> Admission:
        others = [other for other in self.by_name.values() if other is not old]
        if old is not None:
            if producer.access_mode is not AccessMode.SHARED:
                self.access.succeed(producer, old)
            self._disconnect(old)
            if self.access.is_holder(producer):
                return Admission.EXCLUSIVE
        admission = self.access.ask(producer, others)
        if producer.access_mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            for waiting in self.access.drop_waiting():
                self._fail_waiting(waiting, ProducerFenced("Fenced out"))
            for other in others:
                self._disconnect(other)
        return admission

    async def _turn(self, producer: Producer) -> None:
        turn = self._queue[producer] = asyncio.get_running_loop().create_future()
        try:
            await turn
        finally:
            self._queue.pop(producer, None)

    async def _begin_epoch(self, producer: Producer) -> None:
        if self._epoch_turn is None:
            self._epoch_turn = asyncio.Lock()
        async with self._epoch_turn:
            epoch = self.access.next_epoch(producer)
            if epoch != self.access.epoch:
                await self._save_epoch(epoch)
                self.access.epoch = epoch
            producer.topic_epoch = epoch

    def _promote(self) -> None:
        following = self.access.promote(self.by_name.values())
        if following is not None:
            turn = self._queue.get(following)
            if turn is not None and not turn.done():
                turn.set_result(None)

    def _fail_waiting(self, producer: Producer, error: MagnetarError) -> None:
        turn = self._queue.get(producer)
        if turn is not None and not turn.done():
            turn.set_exception(error)

    def _disconnect(self, producer: Producer) -> None:
        producer.is_closed = True
        if self.by_name.get(producer.name) is producer:
            del self.by_name[producer.name]
        producer.link.disconnect_producer(producer)
        self.access.leave(producer)
