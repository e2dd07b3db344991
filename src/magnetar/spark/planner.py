# SPDX-License-Identifier: Apache-2.0
"""From options to offsets and ranges: which topic partitions, from where, up to where, in how many tasks.

Runs in Spark's planner process.
Carries.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import pairwise

from magnetar.errors import BadSetting
from magnetar.names import TopicName
from magnetar.spark.cluster import Cluster
from magnetar.spark.offsets import BEFORE_ALL, Offset
from magnetar.spark.options import Bound, SourceOptions
from magnetar.spark.plan import cuts, shares, tasks_of
from magnetar.spark.positions import Positions
from magnetar.spark.ranges import TopicRange

_QUESTIONS_AT_ONCE = 16


class Planner:
    """Questions about all topic partitions of one source; usable in one process."""

    def __init__(self, here: Cluster, options: SourceOptions) -> None:
        self._here = here
        self._options = options

    def topics(self) -> list[str]:
        return self._here.run(self._here.partitions_of(self._options.topics))

    def begins(self, topics: Iterable[str]) -> dict[str, Offset]:
        return self._here.run(self._each(topics, lambda positions: positions.begin()))

    def ends(self, topics: Iterable[str]) -> dict[str, Offset]:
        return self._here.run(self._each(topics, lambda positions: positions.end()))

    def bound(self, topics: list[str], bound: Bound) -> dict[str, Offset]:
        """Where a read starts or ends, as the options say it."""
        if bound == "earliest":
            return self.begins(topics)
        if bound == "latest":
            return self.ends(topics)
        if isinstance(bound, int):
            return self._here.run(self._each(topics, lambda positions: self._at_time(positions, bound)))
        assert isinstance(bound, dict)
        return self.settled(topics, _of_partitions(topics, bound))

    def settled(self, topics: Iterable[str], offsets: Mapping[str, Offset]) -> dict[str, Offset]:
        """The same offsets, each with its place; a place before all becomes the first message that is there."""

        async def settle(positions: Positions) -> Offset:
            offset = offsets[str(positions.topic)]
            if offset.index is None and offset.after == BEFORE_ALL:
                return await positions.begin()
            return await positions.settle(offset)

        return self._here.run(self._each(topics, settle))

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
        whole = [span for span in whole if not span.is_empty]
        tasks = tasks_of({span.topic: span.messages or 0 for span in whole}, tasks_wanted)
        return self._here.run(self._cut_all(whole, tasks))

    async def _cut_all(self, whole: list[TopicRange], tasks: Mapping[str, int]) -> list[TopicRange]:
        found = []
        for span in whole:
            positions = self._positions(span.topic)
            marks: list[Offset] = []
            if span.messages is not None and span.start.index is not None and span.end.index is not None:
                least = self._options.task_messages_min
                numbers = cuts(span.start.index, span.end.index, tasks[span.topic], least)
                marks = [await positions.at_index(index) for index in numbers]
            places = [span.start, *marks, span.end]
            parts = [TopicRange(span.topic, *pair) for pair in pairwise(places)]
            found += [part for part in parts if not part.is_empty]
        return found

    def _positions(self, topic: str) -> Positions:
        return Positions(self._here.core(), topic, self._options.read_timeout_ms / 1000)

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


def _of_partitions(topics: list[str], given: Mapping[str, Offset]) -> dict[str, Offset]:
    """Offsets by partition: given for each, or for a topic whose partitions all take the same."""
    found = {}
    for topic in topics:
        offset = given.get(topic) or given.get(str(TopicName.parse(topic).base))
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
