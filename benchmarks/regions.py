# SPDX-License-Identifier: Apache-2.0
"""Copies that are far away: in another rack that every receipt waits for, and in another cluster that none waits for.

One bookie, or one cluster, is behind a link that takes its time. Rack by rack a message is in every rack before its
receipt; from cluster to cluster it follows behind it.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import topics
from benchmarks.figures import LESS, Figure, Scale, percentile
from benchmarks.links import HOST, Link
from benchmarks.raw_consume import RawConsumer
from benchmarks.raw_frames import Shape
from benchmarks.raw_paced import DRAIN_LIMIT_S, Latencies, Paced, drive
from benchmarks.raw_publish import connected
from magnetar.runtime.short_turns import ask_for_short_turns
from tests.cluster import Cluster
from tests.geo import Region, Regions, until

TAGS: Final = ("F-GEO-15",)
# What a receipt that waits for fewer copies brings, at a rate far from what the bookies can take.
QUORUM_TAGS: Final = (*TAGS, "F-TUN-02")
RACKS: Final = 3
DELAY_MS: Final = 5
RATE: Final = 500
WARM_UP: Final = 200
# Copies of each entry, and how many of them a receipt waits for.
QUORUMS: Final = ((3, 3), (3, 2))


def _published(source_url: str, topic: str, count: int, target_url: str = "") -> Latencies:
    """At a rate; with a target, whose subscriber gets them all, until it has."""
    (connection,) = connected(source_url, [[topic]])
    paced = Paced(connection, 1, Shape(1024), rate=RATE, count=count)
    there = [RawConsumer(target_url, topic, "there", earliest=False, on_entry=paced.on_entry)] if target_url else []
    drive([paced], there, count / RATE + DRAIN_LIMIT_S)
    return paced.latencies


def _figures(name: str, milliseconds: list[float], settings: str, tags: tuple[str, ...] = TAGS) -> list[Figure]:
    return [
        Figure(f"{name}, p{percent}", percentile(milliseconds, percent), "ms", LESS, "", settings, tags)
        for percent in (50, 99)
    ]


def _in_racks(cluster: Cluster, admin: topics.Admin) -> None:
    """A rack for each bookie."""
    for number, bookie in enumerate(cluster.bookies):
        name = bookie.said["bookieId"]
        place = {"rack": f"/rack-{number}", "hostname": name}
        admin.call("POST", f"bookies/racks-info/{name}?group=default", place)


def rack_by_rack(directory: Path, scale: Scale) -> list[Figure]:
    """Three racks of a bookie each, all near, then one of them far: all three copies waited for, and two."""
    found = []
    count = RATE * scale.of(1, 6, 20)
    required = {
        "bookkeeperClientRackawarePolicyEnabled": "true",
        "bookkeeperClientMinNumRacksPerWriteQuorum": str(RACKS),
        "bookkeeperClientEnforceMinNumRacksPerWriteQuorum": "true",
    }
    cluster = Cluster(directory, bookies=RACKS, environment=required)
    far = cluster.bookies[-1]
    far.configure(advertisedAddress=HOST)
    with Link(far.told_port) as link, cluster:
        assert cluster.broker is not None
        said = cluster.broker.said
        admin = topics.Admin(said["webServiceUrl"])
        _in_racks(cluster, admin)
        for copies, receipts in QUORUMS:
            namespace = f"public/racks-{copies}-{receipts}"
            admin.call("PUT", f"namespaces/{namespace}", {})
            policy = {
                "bookkeeperEnsemble": copies,
                "bookkeeperWriteQuorum": copies,
                "bookkeeperAckQuorum": receipts,
                "managedLedgerMaxMarkDeleteRate": 0.0,
            }
            admin.call("POST", f"namespaces/{namespace}/persistence", policy)
        admin.close()
        settings = f"1 KiB at {RATE}/s, from when each was due; {RACKS} bookies in a rack each, on one disk; "
        settings += "link delayed each way"
        p99: dict[int, float] = {}
        for delay_ms in (0, DELAY_MS):
            link.delay_ms = delay_ms
            for copies, receipts in QUORUMS:
                topic = f"persistent://public/racks-{copies}-{receipts}/load"
                _published(cluster.service_url, topic, WARM_UP)
                taken = _published(cluster.service_url, topic, count).publish_ms
                where = f"one of them {delay_ms} ms away" if delay_ms else "all near"
                name = f"racks, {copies} copies, {receipts} waited for, {where}"
                found += _figures(name, taken, f"{settings}; quorums {copies}/{copies}/{receipts}", QUORUM_TAGS)
                # The last of each, which has the link delayed, is what remains.
                p99[receipts] = percentile(taken, 99)
    name = f"  2 waited for against 3, one of them {DELAY_MS} ms away, p99"
    found.append(Figure(name, p99[2] / p99[3], "times", LESS, "≤ 1", settings, QUORUM_TAGS))
    return found


def cluster_to_cluster(directory: Path, scale: Scale) -> list[Figure]:
    """Two clusters, near and far: what publishing takes at the source, and when a subscriber of the target has it."""
    found = []
    count = RATE * scale.of(1, 6, 20)
    with ExitStack() as stack:
        regions = Regions(directory, "here", "there", settings=[f"advertisedAddress={HOST}"])
        source, target = regions.all
        links = [stack.enter_context(Link(region.port)) for region in regions.all]
        stack.enter_context(regions)
        for delay_ms in (0, DELAY_MS):
            for link in links:
                link.delay_ms = 0
            topic = regions.topic(f"load-{delay_ms}")
            _replicated(source, target, topic)
            links[-1].delay_ms = delay_ms
            taken = _published(source.service_url, topic, count, target.service_url)
            where = f"{delay_ms} ms away" if delay_ms else "near"
            settings = f"1 KiB at {RATE}/s, 2 standalones on one disk, from when each was due; link delayed each way"
            found += _figures(f"geo-replication, target {where}, receipt at the source", taken.publish_ms, settings)
            found += _figures(f"geo-replication, target {where}, message at the target", taken.end_to_end_ms, settings)
    return found


def _replicated(source: Region, target: Region, topic: str) -> None:
    """The topic is in both clusters, and what was published before the clock starts has arrived."""
    _published(source.service_url, topic, WARM_UP)
    until(lambda: source.drained(topic, target.name), f"{topic} is replicated")


def far_copies(directory: Path, scale: Scale) -> list[Figure]:
    ask_for_short_turns()
    return rack_by_rack(directory / "racks", scale) + cluster_to_cluster(directory / "clusters", scale)
