# SPDX-License-Identifier: Apache-2.0
"""Questions to a topic partition: where does it begin and end, which entry comes at or behind a place, which holds
message number n, how far do so many messages or bytes reach.

Each question is a short-lived reader that leaves nothing behind.
Carries.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from magnetar.client.core import Core
from magnetar.errors import BadPosition
from magnetar.ids import EARLIEST, MessageId, Position
from magnetar.names import TopicName
from magnetar.spark.closed_ledger import ClosedLedger
from magnetar.spark.entry_feed import EntryFeed
from magnetar.spark.ledger_feed import Feed, LedgerFeed
from magnetar.spark.offsets import BEFORE_ALL, START, Offset, Place
from magnetar.spark.ranges import missing
from magnetar.spark.search import IndexSearch
from magnetar.spark.stored_entry import StoredEntry

if TYPE_CHECKING:
    from magnetar.spark.storage import Storage

QUESTIONS_MAX: Final = 200


class TopicLedgers(NamedTuple):
    """The closed ledgers of a topic. `is_all`: what is not in them is not asked for."""

    storage: "Storage"
    closed: list[ClosedLedger]
    is_all: bool

    def may_answer(self, position: Position) -> bool:
        return self.is_all or (bool(self.closed) and position <= self.closed[-1].last)


class Positions:
    """Of one topic partition."""

    def __init__(
        self,
        core: Core,
        topic: str,
        timeout_s: float,
        ledgers: "TopicLedgers | None" = None,
        *,
        skips_missing: bool = False,
    ) -> None:
        """`ledgers`: what of the topic can be read from bookies; such questions do not go to a broker.
        `skips_missing`: a message that is not there any more is no error; reading begins behind it."""
        self.topic = TopicName.parse(topic)
        self._core = core
        self._timeout_s = timeout_s
        self._ledgers = ledgers
        self._skips_missing = skips_missing

    async def first_from(self, position: Position) -> StoredEntry | None:
        """The first entry at or behind a place; None if there is none."""
        if self._ledgers is not None and self._ledgers.may_answer(position):
            found = await self._ledgers.storage.first_from(self._ledgers.closed, position)
            if found is not None or self._ledgers.is_all:
                return found
        feed = EntryFeed(self._core, self.topic, position, permits=1)
        await feed.open()
        try:
            end = await feed.end()
            if end.is_reached or end.last.position < position:
                return None
            return (await feed.take(self._timeout_s))[0]
        finally:
            await feed.close()

    async def feed(self, start: Position) -> Feed:
        """Entries from a place on, from bookies as far as they have them. Opened; to be closed."""

        async def follow(position: Position) -> Feed:
            feed = EntryFeed(self._core, self.topic, position)
            await feed.open()
            return feed

        if self._ledgers is None or not self._ledgers.may_answer(start):
            return await follow(start)
        return LedgerFeed(self._ledgers.storage, self._ledgers.closed, start, follow)

    async def end(self) -> Offset:
        """Behind the topic's last message."""
        if self._ledgers is not None and self._ledgers.is_all:
            held = [ledger for ledger in self._ledgers.closed if ledger.entries]
            newest = await self.first_from(held[-1].last) if held else None
            return START if newest is None else numbered(newest, newest.messages)
        feed = EntryFeed(self._core, self.topic, EARLIEST, permits=1)
        await feed.open()
        try:
            end = await feed.end()
        finally:
            await feed.close()
        if end.last.entry_id < 0:
            return START
        last = await self.first_from(end.last.position)
        if last is None or last.position != end.last.position:
            # The last message was trimmed; its place is still the end.
            return Offset(None, Place(*end.last.position))
        return Offset(None if last.first_index is None else last.first_index + last.messages, Place(*last.position))

    async def begin(self) -> Offset:
        """Before the topic's first message that is still there."""
        first = await self.first_from(EARLIEST)
        if first is None:
            return await self.end()
        return before(first)

    async def at_time(self, publish_time_ms: int, last: Position) -> Offset:
        """Before the first message that was published at this time or later, by halving."""
        first = await self.first_from(EARLIEST)
        if first is None or first.metadata.publish_time >= publish_time_ms:
            return await self.begin()
        low, high = first, Position(last.ledger_id, last.entry_id + 1)
        for _ in range(QUESTIONS_MAX):
            target = _middle(low.position, high)
            if target is None:
                break
            found = await self.first_from(target)
            if found is None or found.metadata.publish_time >= publish_time_ms:
                high = target
            else:
                low = found
        index = None if low.first_index is None else low.first_index + low.messages
        return Offset(index, Place(*low.position))

    async def at_index(self, index: int) -> Offset:
        """Before message number `index`. Raises MessagesMissing where it is gone and may not be skipped."""
        end = await self.end()
        assert end.after is not None
        if end.index is None:
            if end == START or index == 0:
                return await self.begin()
            raise BadPosition(f"{self.topic}: this broker does not number messages; give message ids instead")
        if index >= end.index:
            if index == end.index:
                return end
            raise BadPosition(f"{self.topic}: there is no message {index} yet; the next one is {end.index}")
        first = await self.first_from(EARLIEST)
        if self._skips_missing and first is not None and (first.first_index or 0) > index:
            # The place of the first that is there, with the number that was asked for: readers count what is between.
            return Offset(index, before(first).after)
        if first is None or first.numbered is None or first.numbered.first_index > index:
            there = end.index if first is None else first.first_index
            raise missing(str(self.topic), f"messages {index} to {(there or 0) - 1}")
        search = IndexSearch(index, first.numbered, end.after.position)
        for _ in range(QUESTIONS_MAX):
            if search.answer is not None or search.is_impossible:
                break
            found = await self.first_from(search.target)
            search.found(None if found is None else found.numbered)
        if search.answer is None:
            raise missing(str(self.topic), f"message {index} and its neighbours")
        return _inside(index, search.answer.first_index, search.answer.position)

    async def settle(self, offset: Offset) -> Offset:
        """An offset with its place: looked up by its index where it has none; before all is before what is there."""
        if offset.after is None:
            assert offset.index is not None
            return await self.at_index(offset.index)
        return await self.begin() if offset.index is None and offset.after == BEFORE_ALL else offset

    async def reach(self, start: Offset, end: Offset, *, messages_max: int | None, bytes_max: int | None) -> Offset:
        """As far behind `start` as the limits allow, one message at least, and not behind `end`.

        By number where brokers number and only messages count; otherwise by reading the entries on the way.
        """
        if start.index is not None and end.index is not None and bytes_max is None and messages_max is not None:
            wanted = start.index + messages_max
            return end if wanted >= end.index else await self.at_index(wanted)
        assert start.after is not None
        assert end.after is not None
        feed = await self.feed(start.after.position)
        try:
            return await self._walk(feed, start, end, messages_max, bytes_max)
        finally:
            await feed.close()

    async def _walk(
        self, feed: Feed, start: Offset, end: Offset, messages_max: int | None, bytes_max: int | None
    ) -> Offset:
        assert start.after is not None
        assert end.after is not None
        reached, messages, size = start, 0, 0
        while True:
            for entry in await feed.take(self._timeout_s):
                if start.after.covers(entry.position, entry.messages - 1):
                    continue
                if entry.position > end.after.position:
                    return end
                skipped = start.after.messages or 0 if entry.position == start.after.position else 0
                fresh = entry.messages - skipped
                if messages and bytes_max is not None and size + entry.size > bytes_max:
                    return reached
                if messages_max is not None and messages + fresh > messages_max:
                    upto = skipped + messages_max - messages
                    return reached if upto == 0 else numbered(entry, upto)
                messages, size = messages + fresh, size + entry.size
                reached = numbered(entry, entry.messages)
                if entry.position == end.after.position:
                    return end


def before(entry: StoredEntry) -> Offset:
    """Before an entry that is the first of all that are there."""
    position = entry.position
    place = Place(position.ledger_id, position.entry_id - 1)
    return Offset(entry.first_index, BEFORE_ALL if entry.first_index == 0 else place)


def _inside(index: int, first_index: int, position: Position) -> Offset:
    if index == first_index:
        # Behind the entry before, whatever that is: reading starts with this entry's first message.
        return Offset(index, Place(*position, 0))
    return Offset(index, Place(*position, index - first_index))


def numbered(entry: StoredEntry, upto: int) -> Offset:
    """Behind the first `upto` messages of an entry."""
    index = None if entry.first_index is None else entry.first_index + upto
    return Offset(index, Place(*entry.position, None if upto == entry.messages else upto))


def _middle(low: Position, high: Position) -> Position | None:
    """A place between two, ledgers first; None where there is none."""
    ledgers = high.ledger_id - low.ledger_id
    if ledgers > 1 or (ledgers == 1 and high.entry_id > 0):
        return Position(low.ledger_id + (ledgers + 1) // 2, 0)
    begin = low.entry_id + 1
    if ledgers == 1:
        # How far the ledger goes is not known: double the distance.
        return Position(low.ledger_id, 2 * begin)
    return Position(low.ledger_id, (begin + high.entry_id) // 2) if begin < high.entry_id else None


def last_id(offset: Offset) -> MessageId | None:
    """What a cursor is moved to: the last message that is whole behind this offset; None before all."""
    if offset.after is None or offset.after.entry_id < 0:
        return None
    if offset.after.messages is None:
        return MessageId(*offset.after.position)
    return MessageId(offset.after.ledger_id, offset.after.entry_id - 1) if offset.after.entry_id > 0 else None
