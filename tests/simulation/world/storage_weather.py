# SPDX-License-Identifier: Apache-2.0
"""What befalls a storage cluster beside the usual faults: its metadata store and its disks at rest.

Damage at rest stays within what the atlas allows: on one bookie only, and only while everything it acknowledged has
another good copy. The victim may rot, be rolled back to an earlier life, or lose its disks; then an operator lets it
begin again, soon or only after calm, until when it must refuse to start.
"""

from collections.abc import Callable
from contextvars import Context
from functools import partial

from magnetar.runtime.chance import stream
from magnetar.runtime.simulated_kernel import Image
from tests.simulation.world.metadata_weather import MetadataWeather
from tests.simulation.world.node import Node
from tests.simulation.world.storage_cluster import StorageCluster


class StorageWeather:
    def __init__(self, cluster: StorageCluster, clients: list[Node]) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = stream(cluster.world.seed, "storage-weather")
        self._victim = self._random.choice(cluster.nodes)
        self._healed = False
        nemesis = cluster.world.nemesis
        nemesis.targets = [*cluster.nodes, *clients]
        self._metadata = MetadataWeather(cluster.world, cluster.sessions, self._random)
        nemesis.add("rolling-restart", self._restart_all, 0.05, 0.5)
        nemesis.add("bit-rot", self._rot, 0.02, 0.2)
        nemesis.add("wiped-disk", self._wipe, 0.02, 0.2)
        nemesis.add("rolled-back-disk", self._roll_back, 0.1, 0.5)
        # The victim's disk as it was in an earlier life, and which life that was.
        self._image: tuple[int, Image] | None = None

    def heal(self) -> None:
        self._healed = True
        self._world.nemesis.heal()
        self._metadata.heal()

    async def after_calm(self) -> None:
        """The operator's part: a bookie whose disks are empty is let in again."""
        if self._victim.name in self._cluster.emptied:
            await self._cluster.forget_cookie(self._victim)

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
        kernel = self._victim.disk.kernel
        files = [(path, pages) for path, pages in kernel.names.files() if _is_data(path) and len(pages)]
        if not files or not self._may_damage():
            return False
        path, pages = self._random.choice(files)
        self._damage()
        kernel.flip_bit(path, self._random.randrange(len(pages)), self._random.randrange(8))
        return True

    def _wipe(self) -> bool:
        """All disks are lost, and empty ones are in their place."""
        victim, cluster = self._victim, self._cluster
        if not self._may_damage() or victim.name in cluster.emptied:
            return False
        self._damage()
        victim.kill()
        victim.disk.kernel.wipe()
        cluster.emptied[victim.name] = None
        self._image = None
        self._later(self._random.random(), victim.come_back)
        if self._random.random() < 0.5:
            self._later(self._random.uniform(0.0, 3.0), self._let_in)
        return True

    def _let_in(self) -> None:
        self._world.loop.create_task(self._cluster.forget_cookie(self._victim), context=Context())

    def _roll_back(self) -> bool:
        """The disks as they were before the last start: taken when the fault first strikes, put back when it may."""
        victim, storage = self._victim, self._cluster.storages.get(self._victim.name)
        if storage is None or not victim.is_running() or victim.name in self._cluster.emptied:
            return False
        if self._image is None:
            self._image = storage.boots, victim.disk.kernel.image()
            return False
        boots, image = self._image
        # A life that the metadata has not heard of yet has not served anybody: nothing is lost with it.
        if self._cluster.noted_boots(victim) <= boots or not self._may_damage():
            return False
        self._damage()
        victim.kill()
        victim.disk.kernel.restore(image)
        self._cluster.rolled_back[victim.name] = None
        self._later(self._random.random(), victim.come_back)
        return True

    def _may_damage(self) -> bool:
        return self._world.atlas.may_wipe(self._victim.name)

    def _damage(self) -> None:
        self._cluster.damaged[self._victim.name] = None
        self._world.atlas.wiped(self._victim.name)

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self._world.loop.call_later(seconds, lambda: None if self._healed else call(), context=Context())


def _is_data(path: str) -> bool:
    """Entry logs, index and journal; not the cookie, whose loss is another fault."""
    return path.startswith(("ledgers/", "journal/")) and not path.endswith(("/VERSION", "/lock"))
