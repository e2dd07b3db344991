# SPDX-License-Identifier: Apache-2.0
"""What befalls the processes of a soak: one fault at a time, drawn from a seed, each ended after a while."""

import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from tests.cluster import Cluster, RoleProcess
from tests.faults.zookeeper_ensemble import ZooKeeperEnsemble
from tests.relay import Relay

_FILL_BYTES = 1 << 16


class Faults:
    """`step` injects one fault, holds it, ends it, and leaves every process running."""

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        *,
        small_disk: Path | None,
        links: "Links | None" = None,
        ensemble: ZooKeeperEnsemble | None = None,
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._small_disk = small_disk
        self._quit = threading.Event()
        self.struck: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[], None]] = {
            "kill-9 bookie": lambda: self._kill(self._bookie()),
            "kill-9 broker": lambda: self._kill(self._broker()),
            "pause bookie": lambda: self._pause(self._bookie(), 0.2, 6.0),
            "pause broker": lambda: self._pause(self._broker(), 0.2, 3.0),
            # Longer than a session lives: it is lost, and so is what the broker owned.
            "lost session": lambda: self._pause(self._broker(), 35.0, 36.0),
            "rolling restart": self._restart_bookies,
            "orderly broker restart": lambda: self._stop(self._broker()),
        }
        self._weights = [6, 3, 5, 3, 0.3, 1, 1]
        if cluster.metadata is not None:
            metadata = cluster.metadata
            self._kinds["kill-9 metadata"] = lambda: self._kill(metadata)
            self._weights.append(2)
        if small_disk is not None:
            self._kinds["full disk"] = self._fill
            self._weights.append(2)

        if links is not None:
            for to in (to for to, relays in links.relays.items() if relays):
                self._kinds[f"cut link to {to}"] = partial(self._cut, links, to)
                self._kinds[f"slow link to {to}"] = partial(self._slow, links, to)
                self._weights += [2, 2]
        if ensemble is not None:
            self._kinds["restart of a ZooKeeper server"] = lambda: self._random.choice(ensemble.servers).restart()
            self._weights.append(2)

    def step(self) -> str:
        (name,) = self._random.choices(list(self._kinds), self._weights)
        self._kinds[name]()
        self.struck[name] += 1
        self.revive()
        return name

    def revive(self) -> None:
        """A bookie whose journal found no room has ended by itself, as it must: it is started again."""
        for role in self._cluster.processes():
            if not role.is_running:
                self.struck[f"ended by itself: {role.name}"] += 1
                role.start()

    def quit(self) -> None:
        self._quit.set()

    def _bookie(self) -> RoleProcess:
        return self._random.choice(self._cluster.bookies)

    def _broker(self) -> RoleProcess:
        assert self._cluster.broker is not None
        return self._cluster.broker

    def _kill(self, role: RoleProcess) -> None:
        role.kill()
        self._quit.wait(self._random.choice((0.0, 1.0, 4.0)) * self._random.random())
        role.start()

    def _stop(self, role: RoleProcess) -> None:
        role.stop()
        role.start()

    def _pause(self, role: RoleProcess, least_s: float, most_s: float) -> None:
        role.signal(signal.SIGSTOP)
        try:
            self._quit.wait(self._random.uniform(least_s, most_s))
        finally:
            role.signal(signal.SIGCONT)

    def _cut(self, links: "Links", to: str) -> None:
        relay = self._random.choice(links.relays[to])
        relay.cut()
        try:
            self._quit.wait(self._random.uniform(0.5, 8.0))
        finally:
            relay.mend()

    def _slow(self, links: "Links", to: str) -> None:
        relay = self._random.choice(links.relays[to])
        relay.delay_s = self._random.uniform(0.02, 0.3)
        try:
            self._quit.wait(self._random.uniform(1.0, 8.0))
        finally:
            relay.delay_s = 0.0

    def _restart_bookies(self) -> None:
        for bookie in self._cluster.bookies:
            bookie.stop()
            bookie.start()

    def _fill(self) -> None:
        assert self._small_disk is not None
        filler = self._small_disk / "filler"
        try:
            with filler.open("wb") as file:
                while True:
                    file.write(bytes(_FILL_BYTES))
                    file.flush()
        except OSError:
            self._quit.wait(self._random.uniform(1.0, 6.0))
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
