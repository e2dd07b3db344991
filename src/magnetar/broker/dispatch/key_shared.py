# SPDX-License-Identifier: Apache-2.0
"""Key_Shared: all entries of a key go to one consumer, in order, while many consumers share the subscription.

Each hash of the circle has an owner (`key_ranges`). An entry goes to the owner of its key's hash, unless another
consumer still holds entries of that hash: then the hash drains, and only its entries wait. An entry that cannot go now
waits in the queue of its hash, and later entries of the hash wait behind it; all other hashes flow. How many entries
may wait is bounded: beyond that, reading ahead stops. With out-of-order delivery allowed nothing drains and nothing
waits behind another.

Invariants (in order): the entries of one hash that are held are held by one consumer; no entry of a hash is given out
while an earlier one that was not given out waits; a position is never held and queued at once.
Decides.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sortedcontainers import SortedSet

from magnetar.broker.consumer import Consumer, Delivery, DeliveryRun
from magnetar.broker.dispatch.dispatcher import Assignment, Round
from magnetar.broker.dispatch.key_queues import KeyQueues
from magnetar.broker.dispatch.key_ranges import KeyRanges
from magnetar.broker.dispatch.many_consumers import ManyConsumersDispatcher
from magnetar.ids import Position


class DrainingHash(NamedTuple):
    """A hash whose new owner waits until the old one has acknowledged what it holds."""

    slot: int
    holder: Consumer
    entries_held: int
    owner: Consumer | None
    messages_unacked: int = 0
    # How often an entry of it had to wait since it drains.
    blocked: int = 0


class KeySharedDispatcher(ManyConsumersDispatcher):
    needs_keys = True

    def __init__(
        self, ranges: KeyRanges, *, unacked_max: int, look_ahead_max: int, allow_out_of_order: bool = False
    ) -> None:
        super().__init__(unacked_max)
        self.ranges = ranges
        self.allow_out_of_order = allow_out_of_order
        self._look_ahead_max = look_ahead_max
        self._queues = KeyQueues()
        # The hash of every entry that is held or queued.
        self._slots: dict[tuple[int, int], int] = {}
        # Who holds entries of a hash, and how many; with out-of-order delivery the last one who got some.
        self._holders: dict[int, Consumer] = {}
        self._held: dict[int, int] = {}
        # How often entries of a draining hash had to wait; how many hashes a consumer has drained for others.
        self._blocked: dict[int, int] = {}
        self._drained: dict[Consumer, int] = {}
        # Who owns a hash, for those that were asked about since a consumer came or went.
        self._owners: dict[int, Consumer] = {}
        # Entries that may go out and whose key is not known here until they are read.
        self._unsorted: SortedSet[Position] = SortedSet()

    # --- consumers ------------------------------------------------------------------------------

    def add(self, consumer: Consumer) -> None:
        self.ranges.add(consumer)
        self._owners.clear()
        self.consumers.append(consumer)
        self._place_all()

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        self.ranges.remove(consumer)
        self._owners.clear()
        self._drained.pop(consumer, None)
        self._requeue(self._take_back(consumer))
        self._place_all()

    # --- giving out -----------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return self._queues.count + len(self._unsorted)

    def may_read(self) -> bool:
        return self._queues.count < self._look_ahead_max

    def replays(self, count_max: int) -> list[Position]:
        ready: list[Position] = list(self._unsorted[:count_max])
        if self._queues.count:
            servable = [consumer for consumer in self.consumers if consumer.room() > 0]
            share = max(1, (count_max - len(ready)) // max(1, len(servable)))
            for consumer in servable:
                room = min(share, consumer.room(), count_max - len(ready))
                for slot in self._queues.ready(consumer):
                    if room <= 0:
                        break
                    positions = self._queues.head(slot, room)
                    ready += positions
                    room -= len(positions)
        ready.sort()
        return ready

    def assign(self, deliveries: Sequence[Delivery]) -> Round:
        assignment: Assignment = {}
        is_simple = not self._unsorted and not self._counts
        if is_simple and isinstance(deliveries, DeliveryRun) and deliveries.is_single:
            self._assign_run(deliveries, assignment)
        else:
            for delivery in deliveries:
                self._assign_one(delivery, assignment)
        return Round(assignment, len(deliveries))

    def _assign_one(self, delivery: Delivery, assignment: Assignment) -> None:
        position, slot = delivery.position, delivery.facts.key_hash
        if self._unsorted:
            self._unsorted.discard(position)
        first = self._queues.first(slot)
        is_queued = first is not None and self._queues.holds(slot, position)
        if not is_queued and position in self._slots:
            return
        if first is not None and first != position and not self.allow_out_of_order:
            if not is_queued:
                self._wait(slot, position)
            return
        target = self._owner(slot)
        is_draining = self._is_draining(slot, target)
        if is_draining:
            self._blocked[slot] = self._blocked.get(slot, 0) + 1
        if target is None or self.is_blocked or is_draining or target.room() <= 0:
            if not is_queued:
                self._wait(slot, position)
            return
        if is_queued:
            self._queues.discard(slot, position)
            self._queues.serve_later(slot)
        self._slots[position] = slot
        self._holders[slot] = target
        self._held[slot] = self._held.get(slot, 0) + 1
        self._give(target, delivery, assignment)

    def _assign_run(self, run: DeliveryRun, assignment: Assignment) -> None:
        """The same as `_assign_one` for entries that were never here; what they take is counted in the end."""
        slots, holders, held, owners, queues = self._slots, self._holders, self._held, self._owners, self._queues
        may_mix = self.allow_out_of_order
        rooms: dict[Consumer, int] = {}
        left = self.unacked_max - self._unacked if self.unacked_max > 0 else len(run)
        for delivery in run:
            position, slot = delivery[1], delivery[2].key_hash
            if position in slots:
                continue
            if slot in queues and not may_mix:
                self._wait(slot, position)
                continue
            target = owners.get(slot) or self._owner(slot)
            is_draining = not may_mix and holders.get(slot, target) is not target
            if is_draining:
                self._blocked[slot] = self._blocked.get(slot, 0) + 1
            if target is not None and target not in rooms:
                rooms[target] = _entries_for(target)
            if target is None or is_draining or left <= 0 or rooms[target] <= 0:
                self._wait(slot, position)
                continue
            rooms[target] -= 1
            left -= 1
            assignment.setdefault(target, []).append(delivery)
            slots[position] = slot
            holders[slot] = target
            held[slot] = held.get(slot, 0) + 1
        for consumer, given in assignment.items():
            consumer.take(given)
            self._unacked += len(given)

    def enqueue(self, positions: Iterable[Position]) -> None:
        self._unsorted.update(position for position in positions if position not in self._slots)

    def forget_through(self, position: Position) -> None:
        super().forget_through(position)
        for queued, _ in [pair for pair in self._queues.positions() if pair[0] <= position]:
            self._unqueue(queued)
        while self._unsorted and self._unsorted[0] <= position:
            self._unsorted.pop(0)

    def clear(self) -> None:
        super().clear()
        self._queues.clear()
        self._slots.clear()
        self._holders.clear()
        self._held.clear()
        self._blocked.clear()
        self._unsorted.clear()

    # --- questions ------------------------------------------------------------------------------

    def draining(self) -> list[DrainingHash]:
        """Hashes held by a consumer that is no longer their owner, whether or not more of them waits."""
        if self.allow_out_of_order:
            return []
        owners = {slot: self.ranges.consumer(slot) for slot in self._holders}
        draining = {slot for slot, holder in self._holders.items() if owners[slot] is not holder}
        unacked = dict.fromkeys(draining, 0)
        for consumer in dict.fromkeys(self._holders[slot] for slot in draining):
            for position, messages in consumer.pending.items():
                if (slot := self._slots[position]) in unacked:
                    unacked[slot] += messages
        return [
            DrainingHash(slot, holder, self._held[slot], owners[slot], unacked[slot], self._blocked.get(slot, 0))
            for slot, holder in self._holders.items()
            if slot in draining
        ]

    def drained(self, consumer: Consumer) -> int:
        """How many hashes that had moved away this consumer has drained."""
        return self._drained.get(consumer, 0)

    def blocked_first(self) -> tuple[Position, str] | None:
        first = min(self._queues.positions(), default=None)
        if first is None:
            return None
        position, slot = first
        target = self.ranges.consumer(slot)
        if target is None:
            return position, f"no consumer has hash {slot} of its key in its ranges"
        if self._is_draining(slot, target):
            holder = self._holders[slot]
            return position, (
                f"its key (hash {slot}) moved to consumer '{target.name}' and drains behind consumer '{holder.name}', "
                f"which has {self._held[slot]} unacknowledged entries of it"
            )
        if target.is_blocked_by_unacked():
            return position, f"its key belongs to consumer '{target.name}', which has {target.unacked} unacknowledged"
        if target.room() <= 0:
            return position, f"its key belongs to consumer '{target.name}', which has no permits or does not read"
        return None

    def check(self) -> None:
        super().check()
        self._queues.check()
        held: dict[int, list[Consumer]] = {}
        for consumer in self.consumers:
            for position in consumer.pending:
                held.setdefault(self._slots[position], []).append(consumer)
                assert not self._queues.holds(self._slots[position], position), "an entry is held and queued"
        assert {slot: len(holders) for slot, holders in held.items()} == self._held
        if not self.allow_out_of_order:
            assert all(set(holders) == {self._holders[slot]} for slot, holders in held.items()), "two hold one hash"
            for slot in self._queues.slots():
                is_draining = self._is_draining(slot, self.ranges.consumer(slot))
                assert (slot in self._queues.draining) == is_draining, f"hash {slot} waits in the wrong place"

    # --- private --------------------------------------------------------------------------------

    def _requeue(self, positions: Iterable[Position]) -> None:
        for position in positions:
            self._wait(self._release(position), position)

    def _unqueue(self, position: Position) -> None:
        self._unsorted.discard(position)
        slot = self._slots.get(position)
        if slot is not None and self._queues.discard(slot, position):
            del self._slots[position]

    def _on_released(self, position: Position) -> bool:
        slot = self._release(position)
        return slot in self._queues

    def _on_all_released(self, positions: Sequence[tuple[int, int]]) -> bool:
        slots = [self._release(position) for position in positions]
        return bool(self._queues.count) and any(slot in self._queues for slot in slots)

    def _release(self, position: tuple[int, int]) -> int:
        """An entry is held no more. The hash is free for its owner when it was the last one."""
        slot = self._slots.pop(position)
        left = self._held[slot] - 1
        if left:
            self._held[slot] = left
        else:
            del self._held[slot]
            holder = self._holders.pop(slot)
            self._blocked.pop(slot, None)
            if not self.allow_out_of_order and self._owner(slot) is not holder and holder in self.consumers:
                self._drained[holder] = self._drained.get(holder, 0) + 1
            if slot in self._queues.draining:
                self._queues.place(slot, self.ranges.consumer(slot), is_draining=False)
        return slot

    def _owner(self, slot: int) -> Consumer | None:
        owner = self._owners.get(slot)
        if owner is None:
            owner = self.ranges.consumer(slot)
            if owner is not None:
                self._owners[slot] = owner
        return owner

    def _is_draining(self, slot: int, target: Consumer | None) -> bool:
        holder = self._holders.get(slot)
        return holder is not None and holder is not target and not self.allow_out_of_order

    def _wait(self, slot: int, position: Position) -> None:
        self._slots[position] = slot
        if self._queues.add(slot, position):
            self._place(slot)

    def _place(self, slot: int) -> None:
        target = self.ranges.consumer(slot)
        self._queues.place(slot, target, is_draining=self._is_draining(slot, target))

    def _place_all(self) -> None:
        for slot in self._queues.slots():
            self._place(slot)


def _entries_for(consumer: Consumer) -> int:
    """Entries of one message each that a consumer takes now."""
    room = consumer.room()
    return min(room, consumer.unacked_max - consumer.unacked) if consumer.unacked_max > 0 else room
