# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`: every measurement of minutes, on a Magnetar of its own and, with --peers, beside others.

    python -m benchmarks [--quick | --full] [--peers] [--rounds N] [--only WORD …] [--list]

Servers of all peers run side by side and take turns load by load, so that a busy machine is as unfair to one as to the
other; an idle one costs the other next to nothing. What a stall of the disk can decide is measured in several rounds;
the number kept is their median, and the lowest and highest ratio of a round stand beside it. Kafka speaks another
protocol: it takes part in the loads that its own generators know.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks import administering, consuming, footprint, growth, kafka_loads, knobs, latency, publishing, takeover
from benchmarks.figures import Figure, Scale
from benchmarks.kafka_peer import KafkaBrokers, KafkaServer
from benchmarks.peers import ApachePulsar, Missing
from benchmarks.results import Run, Side
from benchmarks.servers import Magnetar, Peer, Server, machine_words, until_settled

OnShared = Callable[[Server, Scale], list[Figure]]
OnFresh = Callable[[Peer, Path, Scale], list[Figure]]
Found = TypeVar("Found")
OnOurs = Callable[[Path, Scale], list[Figure]]


class Load(NamedTuple):
    """`shared` runs on a server that serves every such load, `fresh` starts its own, `ours` is about our own knobs."""

    group: str
    name: str
    shared: OnShared | None = None
    fresh: OnFresh | None = None
    ours: OnOurs | None = None
    peers_only: bool = False
    rounds: int = 1


LOADS = (
    Load("start and memory", "start-and-load", fresh=footprint.start_and_load),
    Load("start and memory", "restarts", fresh=footprint.restarts),
    Load("publish", "publish-raw", shared=publishing.raw, rounds=3),
    Load("publish", "publish-sustained", shared=publishing.sustained),
    Load("publish", "publish-official", shared=publishing.official_client),
    Load("publish", "publish-perf", fresh=publishing.pulsar_perf, peers_only=True),
    Load("latency", "latency", shared=latency.fixed_rates, rounds=5),
    Load("latency", "one-at-a-time", shared=latency.one_at_a_time, rounds=3),
    Load("latency", "end-to-end", shared=latency.end_to_end, rounds=5),
    Load("latency", "beside-a-reader", shared=latency.beside_a_reader, rounds=3),
    Load("consume", "catch-up", shared=consuming.catch_up, rounds=3),
    Load("consume", "tailing", shared=consuming.tailing),
    Load("consume", "consume-official", shared=consuming.official_client),
    Load("consume", "fan-out", shared=consuming.fan_out),
    Load("consume", "delayed", shared=consuming.delayed),
    Load("admin", "create-topics", shared=administering.create_topics, rounds=3),
    Load("admin", "shell", shared=administering.shell_command),
    Load("many", "many-producers", shared=publishing.many_producers, rounds=3),
    Load("many", "many-topics", shared=publishing.many_topics, rounds=3),
    Load("many", "few-and-many", shared=latency.few_and_many_topics, rounds=3),
    Load("many", "many-subscriptions", shared=growth.many_subscriptions),
    Load("cost of one more", "growth", fresh=growth.slopes),
    Load("recovery", "recovery", fresh=footprint.recovery),
    Load("recovery", "take-over", ours=takeover.take_over),
    *(Load("knobs", name, ours=measure) for name, measure in knobs.ALL.items()),
)


def main() -> int:
    arguments = _arguments()
    scale = Scale("quick" if arguments.quick else "full" if arguments.full else "usual")
    chosen = [load for load in LOADS if not arguments.only or any(word in load.name for word in arguments.only)]
    if arguments.list:
        print(*(f"{load.group:18} {load.name}" for load in LOADS), sep="\n")
        return 0
    peers: list[Peer] = [Magnetar()]
    kafka: KafkaBrokers | None = None
    if arguments.peers:
        apache, kafka = _had(ApachePulsar), _had(KafkaBrokers)
        peers += [apache] if apache is not None else []
    sides = [Side(peer.name, peer.words()) for peer in peers]
    sides += [Side(kafka.name, kafka.words())] if kafka is not None else []
    run = Run("peers" if len(sides) > 1 else "bench", machine_words(), scale.name, sides)
    if arguments.only:
        run.keep_earlier()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=arguments.directory) as scratch, ExitStack() as stack:
        bench = _Bench(peers, kafka, Path(scratch), scale, arguments.rounds, stack, run)
        for load in chosen:
            if not (load.peers_only and len(peers) == 1):
                bench.measure(load)
    run.show()
    return 1 if run.failures else 0


def _had(find: Callable[[], Found]) -> Found | None:
    """A peer, or a loud word that it is left out."""
    try:
        return find()
    except Missing as error:
        print(f"SKIPPED, its columns stay empty: {error}", file=sys.stderr, flush=True)
        return None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="everything, little of each: about three minutes")
    parser.add_argument("--full", action="store_true", help="a million delayed, ten thousand topics, 1 GB to recover")
    parser.add_argument("--peers", action="store_true", help="beside Apache Pulsar and Kafka, fetched by Maven")
    parser.add_argument("--rounds", type=int, help="each load so many times, instead of as often as it needs")
    parser.add_argument("--only", nargs="+", default=[], help="loads whose name has one of these words")
    parser.add_argument("--list", action="store_true", help="the names of the loads")
    parser.add_argument("--directory", help="where data directories go; the disk that is measured")
    return parser.parse_args()


class _Bench:
    """The servers that are shared, and what was measured so far."""

    def __init__(
        self,
        peers: list[Peer],
        kafka: KafkaBrokers | None,
        scratch: Path,
        scale: Scale,
        rounds: int | None,
        stack: ExitStack,
        run: Run,
    ) -> None:
        self._peers = peers
        self._kafka = kafka
        self._kafka_server: KafkaServer | None = None
        self._scratch = scratch
        self._scale = scale
        self._rounds = rounds
        self._stack = stack
        self._run = run
        self._servers: dict[str, Server] = {}
        self._made = 0

    def measure(self, load: Load) -> None:
        """All rounds of one load, the peers in turn; one that fails is named, and the others go on."""
        began = time.perf_counter()
        found: dict[str, list[list[Figure]]] = {}
        for _ in range(self._rounds or (1 if self._scale.name == "quick" else load.rounds)):
            for peer in self._peers[:1] if load.ours else self._peers:
                self._try(load, peer.name, partial(self._once, load, peer), found)
            if self._kafka is not None and load.name in (*kafka_loads.SHARED, *kafka_loads.FRESH):
                self._try(load, self._kafka.name, partial(self._once_on_kafka, load.name, self._kafka), found)
        sides = {name: medians(rounds) for name, rounds in found.items()}
        self._run.add(load.group, sides, os.getloadavg()[0])
        self._run.write()
        print(f"{load.name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)

    def _try(
        self, load: Load, name: str, measured: Callable[[], list[Figure]], found: dict[str, list[list[Figure]]]
    ) -> None:
        try:
            found.setdefault(name, []).append(measured())
        except Exception as error:
            traceback.print_exc()
            self._run.failures.append(f"{load.name} on {name}: {type(error).__name__}: {error}"[:300])

    def _once_on_kafka(self, load_name: str, kafka: KafkaBrokers) -> list[Figure]:
        self._made += 1
        if load_name in kafka_loads.FRESH:
            directory = self._scratch / f"{load_name}-{kafka.name}-{self._made}"
            return kafka_loads.FRESH[load_name](kafka, directory, self._scale)
        if self._kafka_server is None:
            self._kafka_server = self._stack.enter_context(kafka.server(self._scratch / kafka.name))
            kafka_loads.warm_up(self._kafka_server, self._scale)
        until_settled(self._kafka_server.pid)
        return kafka_loads.SHARED[load_name](self._kafka_server, self._scale)

    def _once(self, load: Load, peer: Peer) -> list[Figure]:
        self._made += 1
        directory = self._scratch / f"{load.name}-{peer.name}-{self._made}"
        if load.ours is not None:
            return load.ours(directory, self._scale)
        if load.fresh is not None:
            return load.fresh(peer, directory, self._scale)
        assert load.shared is not None
        if peer.name not in self._servers:
            self._servers[peer.name] = self._stack.enter_context(peer.server(self._scratch / peer.name))
            publishing.warm_up(self._servers[peer.name], self._scale)
        until_settled(self._servers[peer.name].pid)
        return load.shared(self._servers[peer.name], self._scale)


def medians(rounds: list[list[Figure]]) -> list[Figure]:
    """Figure by figure, over the rounds that have it."""
    values: dict[str, list[float]] = {}
    last: dict[str, Figure] = {}
    for figures in rounds:
        for figure in figures:
            values.setdefault(figure.name, []).append(figure.value)
            last[figure.name] = figure
    return [
        Figure(
            each.name,
            statistics.median(values[name]),
            each.unit,
            each.better,
            each.aim,
            each.settings,
            each.features,
            tuple(values[name]),
        )
        for name, each in last.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
