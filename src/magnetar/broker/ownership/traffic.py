# SPDX-License-Identifier: Apache-2.0
"""What passes through each topic, and so through each bundle, between two looks at the topics' counters.

A topic that was there at one look only has no traffic yet; counters that fall, because someone who counted has left,
count as nothing. Looks too close together leave the last answer.
Decides.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.load_data import BundleLoad
from magnetar.broker.ownership.usage import ELAPSED_S_MIN
from magnetar.names import TopicName


class TopicCounts(NamedTuple):
    name: TopicName
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    producers: int = 0
    consumers: int = 0


class TrafficMeter:
    __slots__ = ("_counts", "_looked_s", "of_topics")

    def __init__(self) -> None:
        self._counts: dict[TopicName, TopicCounts] = {}
        self._looked_s = 0.0
        self.of_topics: dict[TopicName, BundleLoad] = {}

    def look(self, counts: Iterable[TopicCounts], now_s: float) -> Mapping[TopicName, BundleLoad]:
        elapsed_s = now_s - self._looked_s
        if self._counts and elapsed_s < ELAPSED_S_MIN:
            return self.of_topics
        before, self._counts, self._looked_s = self._counts, {each.name: each for each in counts}, now_s
        self.of_topics = {name: _rates(before.get(name), each, elapsed_s) for name, each in self._counts.items()}
        return self.of_topics


def _rates(before: TopicCounts | None, now: TopicCounts, elapsed_s: float) -> BundleLoad:
    if before is None or elapsed_s < ELAPSED_S_MIN:
        return BundleLoad(topics=1, producers=now.producers, consumers=now.consumers)
    return BundleLoad(
        max(0, now.messages_in - before.messages_in) / elapsed_s,
        max(0, now.messages_out - before.messages_out) / elapsed_s,
        max(0, now.bytes_in - before.bytes_in) / elapsed_s,
        max(0, now.bytes_out - before.bytes_out) / elapsed_s,
        1,
        now.producers,
        now.consumers,
    )


def by_bundle(
    topics: Mapping[TopicName, BundleLoad], held: Iterable[Bundle], find: Callable[[TopicName], Bundle | None]
) -> dict[str, BundleLoad]:
    """The sums of each bundle that is held, those without topics as well."""
    sums = {bundle: BundleLoad() for bundle in held}
    for name, load in topics.items():
        bundle = find(name)
        if bundle in sums:
            sums[bundle] = sums[bundle] + load
    return {str(bundle): load for bundle, load in sums.items()}
