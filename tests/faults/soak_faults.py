# SPDX-License-Identifier: Apache-2.0
"""What befalls a soak: faults drawn from a seed, each kind once before chance rules, now and then two at a time."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.cluster import Cluster, RoleProcess
from tests.faults.soak_history import History, Kind
from tests.faults.soak_load import Consumer
from tests.faults.zookeeper_ensemble import ZooKeeperEnsemble
from tests.relay import Relay

_FILL_BYTES = 1 << 16
SESSION_MS = 10_000
# Longer than a session lives: it is lost, and so is what its process owned.
_LOST_S = (12.0, 14.0)
_OVERLAP_CHANCE = 0.2
_ACTIVE_LEAVES_CHANCE = 0.75
_ABOVE_ALL = "all"
_START_AGAIN_S = 60.0


class Fault(NamedTuple):
    strike: Callable[[Random], None]
    weight: float
    # What it befalls; two faults of one target never overlap.
    target: str


class Faults:
    """`step` injects a fault, or two at a time, holds them, ends them, and leaves every process running."""

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        history: History,
        *,
        small_disk: Path | None,
        consumers: Sequence[Consumer] = (),
        links: "Links | None" = None,
        ensemble: ZooKeeperEnsemble | None = None,
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._history = history
        self._consumers = consumers
        self._quit = threading.Event()
        self.ended_by_themselves: Counter[str] = Counter()
        self.overlaps = 0
        self._kinds: dict[str, Fault] = {
            "kill -9 of a bookie": Fault(lambda random: self._kill(self._bookie(random), random), 4, "bookie"),
            "bookie paused": Fault(lambda random: self._pause(self._bookie(random), random, 0.2, 6.0), 3, "bookie"),
            "kill -9 of the broker": Fault(lambda random: self._kill(self._broker, random), 3, "broker"),
            "broker paused": Fault(lambda random: self._pause(self._broker, random, 0.2, 3.0), 2, "broker"),
            "broker paused until its session is lost": Fault(
                lambda random: self._pause(self._broker, random, *_LOST_S), 1.5, "broker"
            ),
            "orderly restart of the broker": Fault(lambda _: self._restart(self._broker), 1, "broker"),
            "everything restarted in turn": Fault(lambda _: self._restart_all(ensemble), 0.7, _ABOVE_ALL),
        }
        for kind in (Kind.FAILOVER, Kind.SHARED, Kind.KEY_SHARED):
            name = f"a {kind.value} consumer leaves and comes back"
            self._kinds[name] = Fault(partial(self._leave, kind), 3, f"consumers {kind.value}")
        # Kinds that this run cannot have, and why.
        self.impossible: dict[str, str] = {}
        self._add_metadata(cluster.metadata, ensemble)
        self._add_disk(small_disk)
        self._add_links(links)
        self.struck: dict[str, int] = dict.fromkeys(self._kinds, 0)
        self._first_round = list(self._kinds)
        random.shuffle(self._first_round)

    def step(self) -> list[str]:
        """The kinds that were struck. Chance is drawn here only: a seed says the same whatever the load does."""
        names = [self._draw()]
        if self._random.random() < _OVERLAP_CHANCE:
            other = self._draw_beside(names[0])
            names += [other] if other is not None else []
        seeds = [Random(self._random.getrandbits(64)) for _ in names]
        late_s = self._random.uniform(0.0, 1.0)
        failures: list[BaseException] = []
        threads = [
            threading.Thread(target=self._strike, args=(name, random, late_s * index, failures))
            for index, (name, random) in enumerate(zip(names, seeds, strict=True))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        for name in names:
            self.struck[name] += 1
        self.overlaps += len(names) > 1
        self.revive()
        return names

    def revive(self) -> None:
        """A bookie whose journal found no room has ended by itself, as it must: it is started again."""
        for role in self._cluster.processes():
            if not role.is_running:
                self.ended_by_themselves[role.name] += 1
                with self._history.disturbed(f"start of {role.name}"):
                    self._start(role)

    @property
    def bundles_lost(self) -> int:
        """How often the broker said that it lost what it owned."""
        return self._broker.log_path.read_bytes().count(b"this broker has lost")

    def _draw(self) -> str:
        if self._first_round:
            return self._first_round.pop()
        (name,) = self._random.choices(list(self._kinds), [each.weight for each in self._kinds.values()])
        return name

    def _draw_beside(self, name: str) -> str | None:
        target = self._kinds[name].target
        others = {
            other: each.weight
            for other, each in self._kinds.items()
            if _ABOVE_ALL not in (target, each.target) and each.target != target
        }
        return self._random.choices(list(others), list(others.values()))[0] if others else None

    def _strike(self, name: str, random: Random, late_s: float, failures: list[BaseException]) -> None:
        self._quit.wait(late_s)
        try:
            with self._history.disturbed(name):
                self._kinds[name].strike(random)
        except BaseException as error:
            failures.append(error)

    # --- which there are ------------------------------------------------------------------------

    def _add_metadata(self, metadata: RoleProcess | None, ensemble: ZooKeeperEnsemble | None) -> None:
        if ensemble is not None:
            servers = ensemble.servers
            self._kinds["restart of a ZooKeeper server"] = Fault(
                lambda random: random.choice(servers).restart(), 2, "metadata"
            )
        names = ("kill -9 of the metadata server", "metadata server paused", "metadata server paused beyond sessions")
        if metadata is None:
            self.impossible |= dict.fromkeys(names, "the metadata is on servers that are not ours")
            return
        strikes: tuple[Callable[[Random], None], ...] = (
            partial(self._kill, metadata),
            lambda random: self._pause(metadata, random, 0.2, 8.0),
            lambda random: self._pause(metadata, random, *_LOST_S),
        )
        for name, strike, weight in zip(names, strikes, (2, 2, 0.7), strict=True):
            self._kinds[name] = Fault(strike, weight, "metadata")

    def _add_disk(self, small_disk: Path | None) -> None:
        if small_disk is None:
            self.impossible["full disk"] = "mounting a small file system needs root"
        else:
            self._kinds["full disk"] = Fault(partial(self._fill, small_disk), 2, "bookie")

    def _add_links(self, links: "Links | None") -> None:
        for to in ("bookie", "broker", "metadata"):
            names = (f"cut link to {to}", f"slow link to {to}")
            relays = links.relays[to] if links is not None else []
            if not relays:
                why = "links are switched off" if links is None else "its servers are not ours"
                self.impossible |= dict.fromkeys(names, why)
                continue
            for name, strike in zip(names, (self._cut, self._slow), strict=True):
                self._kinds[name] = Fault(partial(strike, relays), 1.5, f"link to {to}")

    # --- what they do ---------------------------------------------------------------------------

    def _bookie(self, random: Random) -> RoleProcess:
        return random.choice(self._cluster.bookies)

    @property
    def _broker(self) -> RoleProcess:
        assert self._cluster.broker is not None
        return self._cluster.broker

    def _kill(self, role: RoleProcess, random: Random) -> None:
        role.kill()
        self._quit.wait(random.choice((0.0, 1.0, 4.0)) * random.random())
        self._start(role)

    def _restart(self, role: RoleProcess) -> None:
        """A bookie may have ended by itself meanwhile."""
        if role.is_running:
            role.stop()
        self._start(role)

    def _restart_all(self, ensemble: ZooKeeperEnsemble | None) -> None:
        for server in ensemble.servers if ensemble is not None else ():
            server.restart()
        for role in reversed(self._cluster.processes()):
            self._restart(role)

    def _start(self, role: RoleProcess) -> None:
        """Who finds no metadata server, because that is struck at the same time, ends; it is started again."""
        until_s = time.monotonic() + _START_AGAIN_S
        while True:
            try:
                role.start()
                return
            except AssertionError:
                if role.is_running or time.monotonic() >= until_s:
                    raise
                self.ended_by_themselves[f"{role.name}, as it started"] += 1
            self._quit.wait(1.0)

    def _pause(self, role: RoleProcess, random: Random, least_s: float, most_s: float) -> None:
        role.signal(signal.SIGSTOP)
        try:
            self._quit.wait(random.uniform(least_s, most_s))
        finally:
            role.signal(signal.SIGCONT)

    def _cut(self, relays: Sequence[Relay], random: Random) -> None:
        relay = random.choice(relays)
        relay.cut()
        try:
            self._quit.wait(random.uniform(0.5, 8.0))
        finally:
            relay.mend()

    def _slow(self, relays: Sequence[Relay], random: Random) -> None:
        relay = random.choice(relays)
        relay.delay_s = random.uniform(0.02, 0.3)
        try:
            self._quit.wait(random.uniform(1.0, 8.0))
        finally:
            relay.delay_s = 0.0

    def _leave(self, kind: Kind, random: Random) -> None:
        """Of Failover mostly the active one, for when another one leaves not much happens."""
        consumer = random.choice([each for each in self._consumers if each.kind is kind])
        taken = self._history.subscriptions[consumer.subscription].taken
        if kind is Kind.FAILOVER and taken and random.random() < _ACTIVE_LEAVES_CHANCE:
            (consumer,) = [each for each in self._consumers if each.name == taken[-1].consumer]
        consumer.leave(lambda: self._quit.wait(random.uniform(0.0, 3.0)))

    def _fill(self, disk: Path, random: Random) -> None:
        filler = disk / "filler"
        try:
            with filler.open("wb") as file:
                while True:
                    file.write(bytes(_FILL_BYTES))
                    file.flush()
        except OSError:
            self._quit.wait(random.uniform(1.0, 6.0))
        finally:
            filler.unlink(missing_ok=True)


class Links:
    """The network of a cluster: whoever talks to a server does so through a relay at another address of loopback.

    Servers listen on 127.0.0.1 and say that they are at `HOST`, on the same ports.
    """

    HOST = "127.0.0.2"

    def __init__(self, cluster: Cluster) -> None:
        self.relays: dict[str, list[Relay]] = {"bookie": [], "broker": [], "metadata": []}
        for role in cluster.processes():
            kind = "metadata" if role is cluster.metadata else "broker" if role in cluster.brokers else "bookie"
            self.relays[kind].append(Relay(role.told_port, host=self.HOST, port=role.told_port))

    def close(self) -> None:
        for relay in (each for relays in self.relays.values() for each in relays):
            relay.close()
