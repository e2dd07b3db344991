# SPDX-License-Identifier: Apache-2.0
"""A subscription in a small world: a log in memory that can be slow or fail, timers and a clock that the test moves."""

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

from magnetar.broker.consumer import Consumer, Delivery
from magnetar.broker.dispatch.parts import DispatchMemory, DispatchParts
from magnetar.broker.subscription import KeySharing, Subscription, SubscriptionType
from magnetar.config.broker import BrokerSettings
from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.errors import BookieUnavailable, NoSuchLedger
from magnetar.ids import EARLIEST, Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.cursor_format import CursorSnapshot
from magnetar.managed_ledger.cursor_state import CursorState
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.ledger_list import LedgerList, LedgerSpan
from magnetar.names import TopicName
from magnetar.runtime.clock import Timer, WallClock
from magnetar.runtime.tasks import Tasks
from magnetar.wire import message
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata

# Of Failover consumers a, b and c the first is active on this topic, and after it the second.
TOPIC = TopicName.parse("persistent://public/default/t3")


class HandClock(WallClock):
    def __init__(self) -> None:
        self.ms = 1_000_000
        self.timers: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    def now_ms(self) -> int:
        return self.ms

    def elapsed_s(self) -> float:
        return self.ms / 1000

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        heapq.heappush(self.timers, (self.ms + 1000 * delay_s, next(self._order), callback))
        return cast("Timer", None)


class SideLedgersTwin:
    """Side ledgers in a plain dict; a set of ids that cannot be read now."""

    def __init__(self) -> None:
        self.stored: dict[int, list[bytes]] = {}
        self.unreadable: set[int] = set()
        self._ids = count(100)

    async def reserve_id(self) -> int:
        return next(self._ids)

    async def write(self, ledger_id: int, entries: Sequence[bytes], about: object) -> None:
        await asyncio.sleep(0)
        self.stored[ledger_id] = list(entries)

    async def read(self, ledger_id: int, entry_id: int) -> bytes:
        await asyncio.sleep(0)
        if ledger_id in self.unreadable:
            raise BookieUnavailable("the test says so")
        if ledger_id not in self.stored:
            raise NoSuchLedger(f"no ledger {ledger_id}")
        return self.stored[ledger_id][entry_id]

    async def delete(self, ledger_id: int) -> None:
        self.stored.pop(ledger_id, None)


class PropertiesTwin:
    """A cursor's store that keeps properties and nothing else."""

    def __init__(self) -> None:
        self.user_properties: dict[str, str] = {}
        self.saved_changes = 0
        self.saved_mark_delete = EARLIEST

    async def set_user_properties(self, properties: Mapping[str, str]) -> None:
        self.user_properties = dict(properties)

    async def save(self, snapshot: Callable[[], tuple[CursorSnapshot, int]]) -> None:
        state, self.saved_changes = snapshot()
        self.saved_mark_delete = state.mark_delete


class LogTwin:
    """What a subscription asks of a managed ledger, over a plain list."""

    name = "public/default/persistent/t"

    def __init__(self) -> None:
        self.side_ledgers = SideLedgersTwin()
        self.ledgers = LedgerList([LedgerSpan(3)])
        self.stored: dict[Position, memoryview] = {}
        self.is_terminated = False
        # Reads from memory find nothing; the next `read` fails; reads wait until they are let go.
        self.is_cold = False
        self.fails_next = False
        self.reads = 0
        self.gate: asyncio.Event | None = None

    @property
    def last_confirmed(self) -> Position:
        return self.ledgers.last_position

    def next_position(self, position: Position) -> Position:
        return self.ledgers.next_position(position)

    def append(self, body: bytes) -> Position:
        span = self.ledgers.last
        position = Position(span.ledger_id, span.entries)
        span.entries += 1
        self.stored[position] = memoryview(body)
        return position

    def roll(self) -> None:
        self.ledgers.append(LedgerSpan(self.ledgers.last.ledger_id + 2))

    def read_cached(self, position: Position, entries_max: int, bytes_max: int) -> list[Entry] | None:
        found = self.ledgers.entry_at_or_after(position)
        if found is None:
            return []
        return None if self.is_cold else self._entries(found, entries_max, bytes_max)

    async def read(self, position: Position, *, entries_max: int, bytes_max: int) -> list[Entry]:
        self.reads += 1
        fails, self.fails_next = self.fails_next, False
        await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate.wait()
        if fails:
            raise BookieUnavailable("the test says so")
        found = self.ledgers.entry_at_or_after(position)
        return [] if found is None else self._entries(found, entries_max, bytes_max)

    async def last_matching(self, matches: Callable[[Entry], bool]) -> Position | None:
        last = None
        for position, body in sorted(self.stored.items()):
            if not matches(Entry(*position, body)):
                break
            last = position
        return last

    def _entries(self, found: Position, entries_max: int, bytes_max: int) -> list[Entry]:
        entries: list[Entry] = []
        while found in self.stored and len(entries) < entries_max and bytes_max > 0:
            entries.append(Entry(*found, self.stored[found]))
            bytes_max -= len(self.stored[found])
            found = Position(found.ledger_id, found.entry_id + 1)
        return entries


class ClientTwin:
    """A consumer's link that remembers what came, in order."""

    def __init__(self) -> None:
        self.writable = True
        self.delivered: list[Delivery] = []
        self.active: list[bool] = []
        self.ended = 0
        self.disconnected = False

    def is_writable(self) -> bool:
        return self.writable

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        self.delivered += deliveries

    def tell_active(self, consumer: Consumer, active: bool) -> None:
        self.active.append(active)

    def tell_end_of_topic(self, consumer: Consumer) -> None:
        self.ended += 1

    def disconnect_consumer(self, consumer: Consumer) -> None:
        self.disconnected = True

    def ids(self) -> list[int]:
        return [delivery.position.entry_id for delivery in self.delivered]


class World:
    """Built inside a running loop."""

    def __init__(self, *, is_durable: bool = False, **settings: Any) -> None:
        self.is_durable = is_durable
        self.clock = HandClock()
        self.log = LogTwin()
        self.memory = DispatchMemory()
        self.crashes: list[BaseException] = []
        self._numbers = count()
        self._names = count(1)
        self._settings = BrokerSettings(**settings)
        self.properties = PropertiesTwin()
        self.reopen()

    def reopen(self) -> None:
        """The subscription, as a new owner finds it: nothing acknowledged, its properties as they were."""
        self.tasks = Tasks("world", lambda _, error: self.crashes.append(error))
        self.clock.timers.clear()
        parts = DispatchParts(self._settings, self.clock, self.tasks, self.clock.call_later, self.memory)
        state = CursorState(self.log.ledgers, self.log.ledgers.before_first)
        cursor = Cursor(
            cast(
                "Any",
                SimpleNamespace(tasks=self.tasks, settings=ManagedLedgerSettings(), name="t", ledgers=self.log.ledgers),
            ),
            "s",
            state,
            store=cast("Any", self.properties) if self.is_durable else None,
            properties={},
            on_saved=lambda: None,
            on_closed=lambda _: None,
        )
        state.reset(EARLIEST)
        self.subscription = Subscription("s", cast("Any", self.log), cursor, parts, topic=TOPIC)

    def publish(
        self,
        *,
        key: str = "",
        batch: int = 0,
        deliver_at_ms: int = 0,
        marker: bool = False,
        size: int = 4,
        chunk: tuple[int, int] | None = None,
    ) -> Position:
        """A message, or the part of a chunked one that this is of so many."""
        metadata = MessageMetadata(producer_name="p", sequence_id=next(self._numbers), publish_time=self.clock.ms)
        if key:
            metadata.partition_key = key
        if batch:
            metadata.num_messages_in_batch = batch
        if deliver_at_ms:
            metadata.deliver_at_time = deliver_at_ms
        if marker:
            metadata.marker_type = 10
        if chunk is not None:
            metadata.uuid, (metadata.chunk_id, metadata.num_chunks_from_msg) = "large", chunk
        position = self.log.append(b"".join(message.join(metadata.SerializeToString(), b"x" * size)))
        self.subscription.wake()
        return position

    def join(
        self,
        type_: SubscriptionType = SubscriptionType.SHARED,
        *,
        permits: int = 0,
        name: str = "",
        unacked_max: int = 0,
        priority: int = 0,
        sharing: KeySharing | None = None,
        key_ranges: Sequence[tuple[int, int]] = (),
    ) -> Consumer:
        consumer = Consumer(
            ClientTwin(),
            1,
            name or f"c{next(self._names)}",
            unacked_max=unacked_max,
            priority=priority,
            key_ranges=key_ranges,
        )
        self.subscription.add_consumer(consumer, type_, sharing)
        if permits:
            self.subscription.on_flow(consumer, permits)
        return consumer

    async def settle(self) -> None:
        """Let everything that is under way on the loop, and timers that are due, run to their end."""
        for _ in range(6):
            while self.clock.timers and self.clock.timers[0][0] <= self.clock.ms:
                heapq.heappop(self.clock.timers)[2]()
            await asyncio.sleep(0)
        assert not self.crashes, self.crashes

    async def pass_time(self, ms: int) -> None:
        until = self.clock.ms + ms
        while self.clock.timers and self.clock.timers[0][0] <= until:
            self.clock.ms = max(self.clock.ms, int(self.clock.timers[0][0]))
            await self.settle()
        self.clock.ms = until
        await self.settle()


def client_of(consumer: Consumer) -> ClientTwin:
    assert isinstance(consumer.link, ClientTwin)
    return consumer.link
