# SPDX-License-Identifier: Apache-2.0
"""From options to offsets and ranges: which topic partitions, from where, up to where, in how many tasks.

Runs in Spark's planner process.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import pairwise

from magnetar.errors import BadSetting, MagnetarError
from magnetar.names import TopicName
from magnetar.spark.cluster import Cluster
from magnetar.spark.offsets import Offset
from magnetar.spark.options import Bound, SourceOptions, TopicBound, Way
from magnetar.spark.plan import cuts, shares, tasks_of
from magnetar.spark.positions import Positions, TopicLedgers, numbered
from magnetar.spark.ranges import TopicRange

_QUESTIONS_AT_ONCE = 16

_log = logging.getLogger(__name__)


class Planner:
    """Questions about all topic partitions of one source; usable in one process."""

    def __init__(self, here: Cluster, options: SourceOptions) -> None:
        self._here = here
        self._options = options
        self._ledgers: dict[str, TopicLedgers] = {}

    def topics(self) -> list[str]:
        """All that are chosen; what of them bookies can give is known from then on."""
        return self._here.run(self._find())

    async def _find(self) -> list[str]:
        options = self._options
        if options.way is Way.BOOKIES:
            topics = await self._here.partitions_on_record(options.topics)
        else:
            topics = await self._here.partitions_of(options.topics)
        if options.partitions is not None:
            topics = [one for one in topics if max(0, TopicName.parse(one).partition_index) in options.partitions]
        await self._find_ledgers(topics)
        return topics

    def look_up(self, topics: Iterable[str]) -> None:
        """For topics that are known already: what of them bookies can give."""
        self._here.run(self._find_ledgers(list(topics)))

    async def _find_ledgers(self, topics: list[str]) -> None:
        """What bookies can give. Where they cannot be reached, brokers give everything, unless they must not."""
        if self._options.connection.metadata_url is None or self._options.way is Way.BROKER:
            return
        is_all = self._options.way is Way.BOOKIES
        try:
            storage = await self._here.storage()
            for topic in topics:
                closed = await storage.closed_ledgers(TopicName.parse(topic))
                found = TopicLedgers(storage, closed, is_all)
                held = [ledger for ledger in closed if ledger.entries]
                if held:
                    # A first entry shows whether the bookies can be reached from here.
                    await storage.read(held[-1], held[-1].entries - 1, 1)
                if held or is_all:
                    self._ledgers[topic] = found
        except MagnetarError as error:
            if is_all:
                raise
            _log.warning("ledgers are read through brokers: %s", error)
            self._ledgers.clear()

    def ends(self, topics: Iterable[str]) -> dict[str, Offset]:
        return self._here.run(self._each(topics, lambda positions: positions.end()))

    def bound(self, topics: list[str], bound: Bound) -> dict[str, Offset]:
        """Where a read starts or ends, as the options say it."""
        given: Mapping[str, TopicBound]
        given = _of_partitions(topics, bound) if isinstance(bound, Mapping) else dict.fromkeys(topics, bound)
        return self._here.run(self._each(topics, lambda positions: self._at(positions, given[str(positions.topic)])))

    async def _at(self, positions: Positions, bound: TopicBound) -> Offset:
        if bound == "earliest":
            return await positions.begin()
        if bound == "latest":
            return await positions.end()
        if isinstance(bound, int):
            return await self._at_time(positions, bound)
        assert isinstance(bound, Offset)
        return await positions.settle(bound)

    def settled(self, topics: Iterable[str], offsets: Mapping[str, Offset]) -> dict[str, Offset]:
        """The same offsets, each with its place; a place before all becomes the first message that is there."""
        return self._here.run(self._each(topics, lambda positions: positions.settle(offsets[str(positions.topic)])))

    def limited(
        self,
        starts: Mapping[str, Offset],
        ends: Mapping[str, Offset],
        messages_max: int | None,
        bytes_max: int | None,
    ) -> dict[str, Offset]:
        """As far as the limits allow. Exact in messages; in bytes one entry per topic partition may pass it."""
        behind = {topic: starts[topic] for topic in starts if _is_behind(starts[topic], ends[topic])}
        if not behind:
            return dict(ends)
        backlogs = {topic: _backlog(start, ends[topic]) for topic, start in behind.items()}
        allowed = dict(backlogs) if messages_max is None else shares(backlogs, messages_max)
        sizes = None if bytes_max is None else shares(dict.fromkeys(behind, bytes_max), bytes_max)

        async def reach(positions: Positions) -> Offset:
            topic = str(positions.topic)
            if allowed[topic] == 0:
                return starts[topic]
            return await positions.reach(
                starts[topic],
                ends[topic],
                messages_max=None if messages_max is None else allowed[topic],
                bytes_max=None if sizes is None else max(1, sizes[topic]),
            )

        return {**ends, **self._here.run(self._each(behind, reach))}

    def ranges(self, starts: Mapping[str, Offset], ends: Mapping[str, Offset], tasks_wanted: int) -> list[TopicRange]:
        """What is between the two, cut into about as many tasks as are wanted."""
        whole = [TopicRange(topic, starts[topic], ends[topic]) for topic in sorted(ends) if topic in starts]
        whole = [part for span in whole if not span.is_empty for part in self._here.run(self._by_way(span))]
        tasks = tasks_of({str(number): span.messages or 0 for number, span in enumerate(whole)}, tasks_wanted)
        return self._here.run(self._cut_all(whole, [tasks[str(number)] for number in range(len(whole))]))

    async def _by_way(self, span: TopicRange) -> list[TopicRange]:
        """The part that bookies give, and the part that a broker gives."""
        ledgers = self._ledgers.get(span.topic)
        held = [one for one in ledgers.closed if one.entries] if ledgers is not None else []
        assert span.start.after is not None
        assert span.end.after is not None
        if ledgers is None or not held or span.start.after.position >= held[-1].last:
            return [span]
        closed = tuple(one for one in held if one.ledger_id >= span.start.after.ledger_id)
        if span.end.after.position <= held[-1].last:
            return [span._replace(ledgers=closed)]
        last = await self._positions(span.topic).first_from(held[-1].last)
        if last is None or last.position != held[-1].last:
            return [span]
        seam = numbered(last, last.messages)
        return [TopicRange(span.topic, span.start, seam, closed), TopicRange(span.topic, seam, span.end)]

    async def _cut_all(self, whole: list[TopicRange], tasks: list[int]) -> list[TopicRange]:
        found = []
        for span, wanted in zip(whole, tasks, strict=True):
            positions = self._positions(span.topic)
            marks: list[Offset] = []
            if span.messages is not None and span.start.index is not None and span.end.index is not None:
                least = self._options.task_messages_min
                numbers = cuts(span.start.index, span.end.index, wanted, least)
                marks = [await positions.at_index(index) for index in numbers]
            places = [span.start, *marks, span.end]
            parts = [TopicRange(span.topic, *pair, span.ledgers) for pair in pairwise(places)]
            found += [part for part in parts if not part.is_empty]
        return found

    def _positions(self, topic: str) -> Positions:
        timeout_s = self._options.read_timeout_ms / 1000
        skips = not self._options.fail_on_data_loss
        return Positions(self._here.core(), topic, timeout_s, self._ledgers.get(topic), skips_missing=skips)

    async def _at_time(self, positions: Positions, publish_time_ms: int) -> Offset:
        end = await positions.end()
        assert end.after is not None
        return await positions.at_time(publish_time_ms, end.after.position)

    async def _each(self, topics: Iterable[str], ask: Callable[[Positions], Awaitable[Offset]]) -> dict[str, Offset]:
        turns = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

        async def one(topic: str) -> Offset:
            async with turns:
                return await ask(self._positions(topic))

        names = list(topics)
        return dict(zip(names, await asyncio.gather(*(one(topic) for topic in names)), strict=True))


def _of_partitions(topics: list[str], given: Mapping[str, TopicBound]) -> dict[str, TopicBound]:
    """Ends by partition: given for each, or for a topic whose partitions all take the same."""
    found = {}
    for topic in topics:
        offset = given.get(topic, given.get(str(TopicName.parse(topic).base)))
        if offset is None:
            raise BadSetting(f"offsets are given by topic, and there is none for {topic}")
        found[topic] = offset
    return found


def _is_behind(start: Offset, end: Offset) -> bool:
    assert start.after is not None
    assert end.after is not None
    return start.after.order < end.after.order


def _backlog(start: Offset, end: Offset) -> int:
    """In messages; without numbers nobody knows, and every partition counts the same."""
    if start.index is None or end.index is None:
        return 2**32
    return max(1, end.index - start.index)
