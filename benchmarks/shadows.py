# SPDX-License-Identifier: Apache-2.0
"""A topic with a thousand subscriptions, all at its owner, and spread over it and its shadows at other brokers.

Every broker reads for its own subscribers from the bookies: what leaves the owner is its share of the subscriptions.
"""

import itertools
from pathlib import Path
from typing import Final

from benchmarks.figures import LESS, Figure, Scale
from benchmarks.raw_consume import RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import Publisher
from benchmarks.servers import freshly_scraped
from tests.brokers import done, make_namespace, owner_of
from tests.cluster import Cluster, RoleProcess

SHADOWS: Final = 2
BUNDLES: Final = 16
NAMES_MAX: Final = 200
_OUT: Final = "pulsar_out_bytes_total"


def _path(topic: str) -> str:
    return f"/admin/v2/{topic.replace('://', '/')}"


class Spread:
    """A source, whose owner is the first of the places, and shadows of it, each at a broker of its own."""

    def __init__(self, cluster: Cluster, namespace: str, shadows: int) -> None:
        names = (f"persistent://{namespace}/{shadows}-{number}" for number in itertools.count())
        source = next(names)
        owner = owner_of(cluster, source)
        self.places: list[tuple[RoleProcess, str]] = [(owner, source)]
        done(owner, "PUT", _path(source))
        for name in itertools.islice(names, NAMES_MAX):
            if len(self.places) > shadows:
                break
            role = owner_of(cluster, name)
            if all(role is not other for other, _ in self.places):
                done(role, "PUT", _path(name), json={"PULSAR.SHADOW_SOURCE": source})
                self.places.append((role, name))
        assert len(self.places) == shadows + 1, f"{NAMES_MAX} topics are at {len(self.places)} brokers"
        if shadows:
            done(owner, "PUT", f"{_path(source)}/shadowTopics", json=[name for _, name in self.places[1:]])

    def consumers(self, subscriptions: int) -> list[RawConsumer]:
        """One each, to the places in turn."""
        turns = itertools.islice(itertools.cycle(self.places), subscriptions)
        return [
            RawConsumer(role.said["serviceUrl"], topic, f"sub-{number}") for number, (role, topic) in enumerate(turns)
        ]

    def publisher(self, entries: int) -> Publisher:
        owner, source = self.places[0]
        return Publisher(owner.said["serviceUrl"], [source], entries, Shape(1024), 100)


def fan_out(directory: Path, scale: Scale) -> list[Figure]:
    subscriptions = scale.of(60, 1_000, 1_000)
    entries = scale.of(100, 200, 1_000)
    out_mb: dict[int, float] = {}
    found = []
    with Cluster(directory, brokers=SHADOWS + 1) as cluster:
        namespace = make_namespace(cluster, "spread", BUNDLES)
        for shadows in (0, SHADOWS):
            spread = Spread(cluster, namespace, shadows)
            owner, _ = spread.places[0]
            consumers = spread.consumers(subscriptions)
            before = freshly_scraped(owner.web_url).get(_OUT, 0.0)
            rate = consume(consumers, entries * subscriptions, [spread.publisher(entries)])
            out_mb[shadows] = (freshly_scraped(owner.web_url)[_OUT] - before) / 1e6
            name = f"{subscriptions:,} subscriptions, {f'{shadows} shadows' if shadows else 'no shadow'}"
            settings = f"{entries:,} messages of 1 KiB to each, {rate:,.0f} deliveries/s in all; "
            settings += f"{SHADOWS + 1} brokers and 3 bookies on the same cores"
            found.append(
                Figure(f"{name}, bytes out of the owner", out_mb[shadows], "MB", LESS, "", settings, ("F-PRB-20",))
            )
    ratio = out_mb[SHADOWS] / out_mb[0]
    settings = f"subscriptions are spread over the topic and {SHADOWS} shadows: a third is the owner's share"
    found.append(Figure("  with shadows against without", ratio, "times", LESS, "≤ 0.4", settings, ("F-PRB-20",)))
    return found
