# SPDX-License-Identifier: Apache-2.0
"""What befalls a storage cluster beside the usual faults: its metadata store and its disks at rest.

Damage at rest stays within what the atlas allows: on one bookie only, and only while everything it acknowledged has
another good copy.
"""

from collections.abc import Callable
from contextvars import Context
from functools import partial

from magnetar.runtime.chance import stream
from tests.simulation.world.metadata_model import MetadataFaults
from tests.simulation.world.node import Node
from tests.simulation.world.storage_cluster import Session, StorageCluster

_CUT = "cut by the nemesis"


class StorageWeather:
    def __init__(self, cluster: StorageCluster, clients: list[Node]) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = stream(cluster.world.seed, "storage-weather")
        self._victim = self._random.choice(cluster.nodes)
        self._healed = False
        nemesis = cluster.world.nemesis
        nemesis.targets = [*cluster.nodes, *clients]
        nemesis.add("metadata-cut", self._cut, 0.02, 0.3)
        nemesis.add("metadata-outage", self._outage, 0.01, 0.1)
        nemesis.add("metadata-expiry", self._expire, 0.01, 0.2)
        nemesis.add("metadata-answers-lost", self._lose_answers, 0.02, 0.2)
        nemesis.add("rolling-restart", self._restart_all, 0.05, 0.5)
        nemesis.add("bit-rot", self._rot, 0.02, 0.2)

    def heal(self) -> None:
        self._healed = True
        self._world.nemesis.heal()
        model = self._cluster.metadata
        if model.is_out:
            model.end_outage()
        self._calm()
        for session in self._cluster.sessions:
            session.unblock(_CUT)

    def _cut(self) -> bool:
        session = self._session()
        if session is None:
            return False
        session.block(_CUT)
        self._later(self._random.choice((0.2, 3.0, 10.0)) * self._random.random(), partial(session.unblock, _CUT))
        return True

    def _outage(self) -> bool:
        model = self._cluster.metadata
        if model.is_out:
            return False
        model.begin_outage()
        self._later(self._random.uniform(0.1, 5.0), model.end_outage)
        return True

    def _expire(self) -> bool:
        session = self._session()
        if session is not None:
            self._cluster.metadata.expire(session.store)
        return session is not None

    def _lose_answers(self) -> bool:
        faults: MetadataFaults = self._cluster.metadata.faults
        faults.request_lost_chance = faults.answer_lost_chance = self._random.random() * 0.2
        self._later(self._random.uniform(0.1, 3.0), self._calm)
        return True

    def _calm(self) -> None:
        faults = self._cluster.metadata.faults
        faults.request_lost_chance = faults.answer_lost_chance = 0.0

    def _restart_all(self) -> bool:
        """One bookie after the other, each for a moment: idle clients notice nothing."""
        crash = self._random.choice((Node.kill, Node.lose_power))
        delay_s = 0.0
        for node in self._cluster.nodes:
            delay_s += self._random.uniform(0.0, 0.1)
            self._later(delay_s, partial(self._restart, node, crash))
        return True

    def _restart(self, node: Node, crash: Callable[[Node], None]) -> None:
        if node.is_running() and not node.is_paused():
            crash(node)
            self._later(0.02, node.come_back)

    def _rot(self) -> bool:
        """One bit of a finished file, if everything on this bookie has a good copy elsewhere."""
        atlas, kernel = self._world.atlas, self._victim.disk.kernel
        if not atlas.may_wipe(self._victim.name):
            return False
        files = [(path, pages) for path, pages in kernel.names.files() if path.startswith("ledgers/") and len(pages)]
        if not files:
            return False
        path, pages = self._random.choice(files)
        self._cluster.damaged[self._victim.name] = None
        atlas.wiped(self._victim.name)
        kernel.flip_bit(path, self._random.randrange(len(pages)), self._random.randrange(8))
        return True

    def _session(self) -> Session | None:
        living = [session for session in self._cluster.sessions if not session.process.dead]
        return self._random.choice(living) if living else None

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self._world.loop.call_later(seconds, lambda: None if self._healed else call(), context=Context())
