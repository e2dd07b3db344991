# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`: every measurement of minutes, on a Magnetar of its own and, with --peers, beside others.

    python -m benchmarks [--quick | --full] [--peers] [--rounds N] [--only WORD …] [--list]

Servers of all peers run side by side and take turns load by load, so that a busy machine is as unfair to one as to the
other; an idle one costs the other next to nothing. What a stall of the disk can decide is measured in several rounds;
the number kept is their median (of worst ones the worst), and the lowest and highest ratio of a round stand beside it.
Kafka speaks another protocol: it takes part in the loads that its own generators know.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from benchmarks import (
    administering,
    compacting,
    consuming,
    footprint,
    growth,
    kafka_loads,
    knobs,
    latency,
    publishing,
    regions,
    shadows,
    takeover,
)
from benchmarks.figures import WORST, Figure, Scale
from benchmarks.kafka_peer import KafkaBrokers
from benchmarks.peers import ApachePulsar, Missing
from benchmarks.results import Run, Side
from benchmarks.servers import Disk, Magnetar, Peer, Server, disk_of, machine_words, until_settled
from benchmarks.shared_servers import SharedServers, given_back

SPARE_GB: Final = 1.0
"""What is left alone of a disk."""

OnShared = Callable[[Server, Scale], list[Figure]]
OnFresh = Callable[[Peer, Path, Scale], list[Figure]]
Found = TypeVar("Found")
OnOurs = Callable[[Path, Scale], list[Figure]]


class Load(NamedTuple):
    """`shared` runs on a server that serves every such load, `fresh` starts its own, `ours` is about our own knobs.

    `disk_gb` is what one round needs of the disk at each scale: for shared servers the mean of the sides, since Pulsar
    keeps journals for longer than we do; for the others, which give it back afterwards, that of the larger side.
    """

    group: str
    name: str
    shared: OnShared | None = None
    fresh: OnFresh | None = None
    ours: OnOurs | None = None
    peers_only: bool = False
    rounds: int = 1
    disk_gb: tuple[float, float, float] = (0.05, 0.2, 0.5)


LOADS = (
    Load("start and memory", "start-and-load", fresh=footprint.start_and_load, disk_gb=(0.1, 0.3, 2.5)),
    Load("start and memory", "restarts", fresh=footprint.restarts),
    Load("publish", "publish-raw", shared=publishing.raw, rounds=3, disk_gb=(5.0, 11.0, 12.0)),
    Load("publish", "publish-sustained", shared=publishing.sustained, disk_gb=(0.1, 4.0, 8.0)),
    Load("publish", "publish-official", shared=publishing.python_clients, rounds=3, disk_gb=(0.05, 0.3, 1.7)),
    Load("publish", "publish-partitions", shared=publishing.partitions, rounds=3, disk_gb=(0.7, 1.4, 1.4)),
    # So many seconds as fast as it goes, each kind of messages by itself: 1.1 GB/s were measured.
    Load("publish", "publish-perf", fresh=publishing.pulsar_perf, peers_only=True, disk_gb=(25.0, 36.0, 58.0)),
    Load("latency", "latency", shared=latency.fixed_rates, rounds=9),
    Load("latency", "latency-sizes", shared=latency.sizes, rounds=3, disk_gb=(0.2, 0.4, 1.4)),
    Load("latency", "one-at-a-time", shared=latency.one_at_a_time, rounds=3),
    Load("latency", "end-to-end", shared=latency.end_to_end, rounds=5),
    Load("latency", "beside-a-reader", shared=latency.beside_a_reader, rounds=5, disk_gb=(0.05, 0.2, 2.0)),
    Load("consume", "catch-up", shared=consuming.catch_up, rounds=3, disk_gb=(0.1, 1.4, 4.0)),
    Load("consume", "tailing", shared=consuming.tailing, rounds=3, disk_gb=(0.2, 3.2, 5.6)),
    Load("consume", "consume-official", shared=consuming.python_clients, rounds=3, disk_gb=(0.05, 0.3, 1.7)),
    Load("consume", "fan-out", shared=consuming.fan_out, rounds=3, disk_gb=(0.05, 0.3, 1.2)),
    Load("consume", "delayed", shared=consuming.delayed, disk_gb=(0.1, 0.6, 0.6)),
    Load("admin", "create-topics", shared=administering.create_topics, rounds=3),
    Load("admin", "shell", shared=administering.shell_command),
    Load("many", "many-producers", shared=publishing.many_producers, rounds=3, disk_gb=(3.0, 6.0, 6.5)),
    Load("many", "few-topics", shared=publishing.few_topics, rounds=3, disk_gb=(5.0, 12.0, 13.0)),
    Load("many", "many-topics", shared=publishing.many_topics, disk_gb=(3.0, 6.0, 6.5)),
    Load("many", "few-and-many", shared=latency.few_and_many_topics),
    Load("many", "many-subscriptions", shared=growth.many_subscriptions, disk_gb=(0.1, 0.5, 0.5)),
    Load("many", "shadow-topics", ours=shadows.fan_out),
    Load("cost of one more", "growth", fresh=growth.slopes),
    Load("recovery", "recovery", fresh=footprint.recovery, disk_gb=(0.2, 4.5, 5.5)),
    Load("recovery", "take-over", ours=takeover.take_over),
    Load("beside compaction", "compaction", ours=compacting.compaction, rounds=3, disk_gb=(0.8, 1.5, 3.0)),
    Load("several clusters", "far-copies", ours=regions.far_copies, rounds=3),
    *(Load("knobs", name, ours=measure, disk_gb=(0.5, 4.5, 12.0)) for name, measure in knobs.ALL.items()),
)


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    scale = Scale("quick" if arguments.quick else "full" if arguments.full else "usual")
    if arguments.list:
        print(*(f"{load.group:18} {load.name}" for load in LOADS), sep="\n")
        return 0
    place = Path(arguments.directory or tempfile.gettempdir())
    try:
        chosen = chosen_loads(arguments.only, peers=arguments.peers)
        disk = disk_of(place)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    remarks: list[str] = []
    peers: list[Peer] = [Magnetar()]
    kafka: KafkaBrokers | None = None
    if arguments.peers:
        apache = had("pulsar", ApachePulsar, remarks)
        kafka = had("kafka", KafkaBrokers, remarks)
        peers += [apache] if apache is not None else []
    for load in [load for load in chosen if load.peers_only and len(peers) == 1]:
        _skip(f"{load.name}: its generator is Apache Pulsar's", remarks)
        chosen.remove(load)
    chosen = fitting(chosen, disk, scale, len(peers), remarks)
    if not chosen:
        return 2
    sides = [Side(peer.name, peer.words()) for peer in peers]
    sides += [Side(kafka.name, kafka.words())] if kafka is not None else []
    run = Run("peers" if len(sides) > 1 else "bench", machine_words(place), scale.name, sides)
    run.remarks = remarks
    if arguments.only:
        run.keep_earlier()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=place) as scratch:
        shared = SharedServers(Path(scratch), lambda: disk_of(place).room_gb - SPARE_GB)
        with closing(shared):
            bench = _Bench(peers, kafka, Path(scratch), scale, arguments.rounds, shared, run)
            for load in chosen:
                bench.measure(load)
    run.write()
    run.show()
    return 1 if run.failures else 0


def chosen_loads(words: list[str], *, peers: bool) -> list[Load]:
    """Those with one of the words in their names, else all; ValueError where a word chooses nothing."""
    at_hand = [load for load in LOADS if peers or not load.peers_only]
    for word in words:
        if not any(word in load.name for load in at_hand):
            beside = "" if peers else " without --peers"
            raise ValueError(f"no load{beside} is named {word!r}; there are {', '.join(load.name for load in at_hand)}")
    return [load for load in at_hand if not words or any(word in load.name for word in words)]


def left_gb(load: Load, scale: Scale, sides: int) -> float:
    """By one round: of all sides on servers that are shared; of others one side's, since that is given back."""
    once = dict(zip(("quick", "usual", "full"), load.disk_gb, strict=True))[scale.name]
    return once * sides if load.shared is not None else once


def fitting(chosen: list[Load], disk: Disk, scale: Scale, sides: int, remarks: list[str]) -> list[Load]:
    """Those whose data the disk holds. It is said which are left out, and of a disk in memory that it is none."""
    if disk.is_memory:
        remarks.append(f"NO DISK: {disk.words}, where a sync costs nothing; --directory names another place")
        print(remarks[-1], file=sys.stderr, flush=True)
    found = []
    for load in chosen:
        needed = SPARE_GB + left_gb(load, scale, sides)
        if needed <= disk.room_gb:
            found.append(load)
            continue
        usable = f"{disk.words}, of which servers use {max(0.0, disk.room_gb):.0f}"
        _skip(f"{load.name}: it needs about {needed:.0f} GB, but {usable}: --directory names another place", remarks)
    return found


def _rounds(load: Load, scale: Scale, asked: int | None) -> int:
    return asked or (1 if scale.name == "quick" else load.rounds)


def _skip(words: str, remarks: list[str]) -> None:
    remarks.append("SKIPPED " + " ".join(words.split()))
    print(remarks[-1], file=sys.stderr, flush=True)


def had(name: str, find: Callable[[], Found], remarks: list[str]) -> Found | None:
    """A peer, or a loud word that it is left out."""
    try:
        return find()
    except (Missing, OSError) as error:
        _skip(f"{name}: {error}", remarks)
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="everything, little of each, nothing judged: four minutes")
    parser.add_argument(
        "--full", action="store_true", help="the same for longer: more than an hour; hours beside peers"
    )
    parser.add_argument(
        "--peers", action="store_true", help="beside Apache Pulsar and Kafka, fetched by Maven: an hour"
    )
    parser.add_argument("--rounds", type=int, help="each load so many times, instead of as often as it needs")
    parser.add_argument("--only", nargs="+", default=[], help="loads whose name has one of these words")
    parser.add_argument("--list", action="store_true", help="the names of the loads")
    parser.add_argument("--directory", help="where data directories go; the disk that is measured")
    return parser


class _Bench:
    """The servers that are shared, and what was measured so far."""

    def __init__(
        self,
        peers: list[Peer],
        kafka: KafkaBrokers | None,
        scratch: Path,
        scale: Scale,
        rounds: int | None,
        shared: SharedServers,
        run: Run,
    ) -> None:
        self._peers = peers
        self._kafka = kafka
        self._scratch = scratch
        self._scale = scale
        self._rounds = rounds
        self._shared = shared
        self._run = run
        self._made = 0

    def measure(self, load: Load) -> None:
        """All rounds of one load, the peers in turn; one that fails is named, and the others go on."""
        began = time.perf_counter()
        found: dict[str, list[list[Figure]]] = {}
        rounds = _rounds(load, self._scale, self._rounds)
        for _ in range(rounds):
            self._make_room(load)
            for peer in self._peers[:1] if load.ours else self._peers:
                self._try(load, peer.name, partial(self._once, load, peer), found)
            if self._kafka is not None and load.name in (*kafka_loads.SHARED, *kafka_loads.FRESH):
                self._try(load, self._kafka.name, partial(self._once_on_kafka, load.name, self._kafka), found)
        sides = {name: medians(measured) for name, measured in found.items()}
        self._run.add(load.group, sides, os.getloadavg()[0], load.name, rounds)
        self._run.write()
        print(f"{load.name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)

    def _make_room(self, load: Load) -> None:
        if self._shared.make_room(left_gb(load, self._scale, len(self._peers))):
            words = f"NEW SERVERS for {load.name} and what follows: with what was left by then, it would not fit"
            self._run.remarks.append(words)
            print(words, file=sys.stderr, flush=True)

    def _try(
        self, load: Load, name: str, measured: Callable[[], list[Figure]], found: dict[str, list[list[Figure]]]
    ) -> None:
        try:
            found.setdefault(name, []).append(measured())
        except Exception as error:
            traceback.print_exc()
            self._run.fail(load.name, f"{name}: {type(error).__name__}: {error}")

    def _once_on_kafka(self, load_name: str, kafka: KafkaBrokers) -> list[Figure]:
        self._made += 1
        if load_name in kafka_loads.FRESH:
            directory = self._scratch / f"{load_name}-{kafka.name}-{self._made}"
            with given_back(directory):
                return kafka_loads.FRESH[load_name](kafka, directory, self._scale)
        server = self._shared.of(kafka.name, kafka.server, partial(kafka_loads.warm_up, scale=self._scale))
        until_settled(server.pid)
        return kafka_loads.SHARED[load_name](server, self._scale)

    def _once(self, load: Load, peer: Peer) -> list[Figure]:
        self._made += 1
        directory = self._scratch / f"{load.name}-{peer.name}-{self._made}"
        with given_back(directory):
            if load.ours is not None:
                return load.ours(directory, self._scale)
            if load.fresh is not None:
                return load.fresh(peer, directory, self._scale)
        assert load.shared is not None
        server = self._shared.of(peer.name, peer.server, partial(publishing.warm_up, scale=self._scale))
        until_settled(server.pid)
        return load.shared(server, self._scale)


def medians(rounds: list[list[Figure]]) -> list[Figure]:
    """Figure by figure, over the rounds that have it; of what was the worst in each, the worst."""
    values: dict[str, list[float]] = {}
    last: dict[str, Figure] = {}
    for figures in rounds:
        for figure in figures:
            values.setdefault(figure.name, []).append(figure.value)
            last[figure.name] = figure
    return [
        replace(
            each,
            value=max(values[name]) if name.endswith(WORST) else statistics.median(values[name]),
            rounds=tuple(values[name]),
        )
        for name, each in last.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
