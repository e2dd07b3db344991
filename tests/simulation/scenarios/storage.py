# SPDX-License-Identifier: Apache-2.0
"""Bookies and ledger clients, unchanged, in any weather: ledgers are written, taken over, read while they are written.

A seed draws the number of bookies, the quorums, the client's settings, how many clients write and take over, and the
faults. Clients prefer to take over ledgers that are being written: that is where fencing and recovery are decided.
`takeover` is nothing but that: short ledgers, each taken over in the middle of its first adds, on ways where answers
overtake each other.
After calm every ledger must open, end where everybody said it ends, and hold everything that was confirmed.

Planted bugs: see planted_bugs.py.
"""

import asyncio
from collections import deque
from dataclasses import replace
from random import Random

from magnetar.config.ledger import LedgerSettings
from magnetar.errors import MagnetarError
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.reader import LedgerReader
from magnetar.ledger.writer import LedgerWriter
from magnetar.wire.bookkeeper.digest import DigestType
from tests.simulation.world.checkers.ledgers import Added, confirmed_in_order, ledgers
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import Operation
from tests.simulation.world.node import Node
from tests.simulation.world.planted_bugs import bookie_settings, planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.replica_sweep import ReplicaSweep
from tests.simulation.world.storage_cluster import REPAIRS, StorageCluster, simulated
from tests.simulation.world.storage_weather import StorageWeather
from tests.simulation.world.world import World

_SECONDS = 6.0
_CALM_S = 120.0
_DAMAGED_S = 10.0
_PASSWORD = b"secret"
_READ_BYTES_MAX = 4096
_LEDGERS_MAX = 8
_DUELS_MAX = 40
_WINDOW = 6


@scenario("storage")
async def storage(world: World) -> None:
    await _told(world, is_duel=False)


@scenario("takeover")
async def takeover(world: World) -> None:
    await _told(world, is_duel=True)


async def _told(world: World, *, is_duel: bool) -> None:
    story = Storage(world, is_duel=is_duel)
    with planted(world.planted), simulated(story.cluster):
        await story.run()


class Storage:
    def __init__(self, world: World, *, is_duel: bool) -> None:
        random = world.random
        self.world = world
        self.history = world.history
        self.cluster = StorageCluster(
            world,
            random.choice((3, 3, 4, 5, 7)),
            bookie_settings=bookie_settings(world.planted),
            ledger_settings=_drawn(random),
            repairs=REPAIRS if not is_duel and random.random() < 0.5 else None,
        )
        self.cluster.channel_settings = replace(
            self.cluster.channel_settings,
            use_v2_protocol=random.random() < 0.7,
            connections_per_bookie=random.choice((1, 1, 2)),
        )
        # Where answers overtake each other is where quorums are decided.
        world.network.links.settings.tail_ms = random.choice((0.3, 3.0, 30.0))
        self.is_duel = is_duel
        size = random.randint(2, min(5, len(self.cluster.nodes)))
        write_quorum = random.randint(max(1, size - 2), size)
        self.quorum = Quorum(size, write_quorum, random.randint(max(1, write_quorum - 1), write_quorum))
        self.ledgers_max = _LEDGERS_MAX
        if self.is_duel:
            # Nobody waits for the slowest answer where two of three decide.
            self.quorum = random.choice((Quorum(3, 3, 2), Quorum(3, 3, 2), Quorum(3, 2, 1)))
            self.ledgers_max = _DUELS_MAX
            self.cluster.haste = random.choice((0.0, 0.4))
            world.network.links.settings.tail_ms = random.choice((10.0, 30.0, 100.0))
        self.ledgers_max = world.at_most("ledgers", self.ledgers_max)
        clients_count = world.at_most("clients", random.choice((2, 3)))
        self.clients = [_Client(self, world.node(f"client-{number}")) for number in range(clients_count)]
        self.weather = StorageWeather(self.cluster, [client.node for client in self.clients])
        # Ledgers that were made, oldest first, and those whose writer may still be at work.
        self.made: list[int] = []
        self.being_written: dict[int, None] = {}
        self.stopping = False

    async def run(self) -> None:
        world = self.world
        await self.cluster.start()
        keeping = asyncio.get_running_loop().create_task(self.cluster.sessions.keep())
        for client in self.clients:
            client.node.start(client.live)
        await world.nemesis.run(_SECONDS)
        self.weather.heal()
        self.stopping = True
        await self.weather.after_calm()
        async with asyncio.timeout(_CALM_S):
            for client in self.clients:
                await client.stopped.wait()
        await self._scan_all()
        keeping.cancel()
        world.check(ledgers(self.history) + confirmed_in_order(self.history) + self.cluster.records.violations)

    async def _scan_all(self) -> None:
        scanner = self.world.node("scanner")
        done = asyncio.Event()

        async def scan(node: Node) -> None:
            client = await self.cluster.client(node)
            damaged = bool(self.cluster.damaged)
            sweep = ReplicaSweep(self.world, client, patience_s=_CALM_S, is_damaged=damaged)
            for ledger_id in self.made:
                await self._scan(client, sweep, ledger_id)
            if self.cluster.repairs is not None and not self._is_excused():
                await sweep.check_convergence(self.made)
                await self._check_doubts()
            done.set()
            await asyncio.get_running_loop().create_future()

        scanner.start(scan)
        async with asyncio.timeout(_CALM_S * 4):
            await done.wait()

    async def _check_doubts(self) -> None:
        """Who lost something has it again after calm, and doubts no ledger of this story any more."""
        deadline = self.world.loop.time() + _CALM_S
        for name, storage in list(self.cluster.storages.items()):
            while doubted := [each for each in await storage.doubts.ledger_ids() if each in self.made]:
                if self.world.loop.time() > deadline:
                    sentence = f"{name} still doubts ledgers {doubted} after calm"
                    self.world.check([Violation("I14 honest", sentence)])
                    break
                await asyncio.sleep(0.5)

    def _is_excused(self) -> bool:
        """Where one bookie's word is enough, its loss leaves nobody who could say that there was no more."""
        return bool(self.cluster.damaged) and self.quorum.ack_quorum == 1

    async def _scan(self, client: Ledgers, sweep: ReplicaSweep, ledger_id: int) -> None:
        operation = self.history.invoke("scanner", "scan", ledger_id)
        deadline = self.world.loop.time() + (_DAMAGED_S if self._is_excused() else _CALM_S)
        while True:
            try:
                reader = await client.open(ledger_id, password=_PASSWORD)
                entries = await read_range(reader, 0, reader.last_entry)
                self.history.ok(operation, (reader.last_entry, entries))
                break
            except MagnetarError as error:
                if self.world.loop.time() > deadline:
                    self.history.info(operation, str(error))
                    if not self._is_excused():
                        sentence = f"ledger {ledger_id} cannot be opened and read after calm: {error}"
                        self.world.check([Violation("I13 live", sentence, (operation,))])
                    return
            await asyncio.sleep(0.5)
        await sweep.check(ledger_id)


async def read_range(reader: LedgerReader, first: int, last: int) -> list[tuple[int, bytes]]:
    entries: list[tuple[int, bytes]] = []
    while first <= last:
        bodies = await reader.read(first, last, bytes_max=_READ_BYTES_MAX)
        entries += [(first + number, bytes(body)) for number, body in enumerate(bodies)]
        first += len(bodies)
    return entries


class _Writing:
    """The listener of one writer: ends each add of the history when it is confirmed, or when nobody knows."""

    def __init__(self, story: Storage) -> None:
        self._story = story
        self.adds: deque[Operation] = deque()
        self.news = asyncio.Event()

    def on_confirmed(self, writer: LedgerWriter, entry_id: int) -> None:
        while self.adds and self.adds[0].value.entry_id <= entry_id:
            self._story.history.ok(self.adds.popleft())
        self.news.set()

    def on_failed(self, writer: LedgerWriter, error: MagnetarError) -> None:
        while self.adds:
            self._story.history.info(self.adds.popleft(), type(error).__name__)
        self.news.set()


class _Client:
    """One process after another on one node; each life begins with nothing but what the story knows."""

    def __init__(self, story: Storage, node: Node) -> None:
        self._story = story
        self.node = node
        self.stopped = asyncio.Event()
        self._name = ""
        self._random = node.random("actions")
        # In a duel: who waits for the next ledger, and which was the last one.
        self.is_idle = False
        self._fought = -1

    async def live(self, node: Node) -> None:
        story = self._story
        self._name = f"{node.name}/{node.lives}"
        self._random = node.random(f"actions-{node.lives}")
        client = await story.cluster.client(node)
        while not story.stopping:
            if story.is_duel:
                await self._fight(client)
                await asyncio.sleep(0.004 * self._random.random())
            else:
                await self._act(client)
                await asyncio.sleep(0.2 * self._random.random())
        self.stopped.set()
        await asyncio.get_running_loop().create_future()

    async def _fight(self, client: Ledgers) -> None:
        """The first client writes a few entries; the others take the ledger over while the first of them travel."""
        story = self._story
        if self is story.clients[0]:
            if len(story.made) < story.ledgers_max and any(other.is_idle for other in story.clients):
                await self._write(client, self._random.randrange(1, 4))
            return
        self.is_idle = True
        fresh = [ledger_id for ledger_id in story.being_written if ledger_id != self._fought]
        if fresh:
            self._fought = fresh[-1]
            self.is_idle = False
            await asyncio.sleep(0.03 * self._random.random())
            await self._take_over(client, self._fought)

    async def _act(self, client: Ledgers) -> None:
        story = self._story
        choice = self._random.random()
        if not story.made or (choice < 0.4 and len(story.made) < story.ledgers_max):
            await self._write(client, self._random.choice((2, 8, 20)))
        elif choice < 0.75:
            await self._take_over(client, self._chosen())
        else:
            await self._tail(client, self._chosen())

    def _chosen(self) -> int:
        story = self._story
        busy = list(story.being_written)
        return self._random.choice(busy if busy and self._random.random() < 0.7 else story.made)

    async def _write(self, client: Ledgers, count: int) -> None:
        story, random = self._story, self._random
        writing = _Writing(story)
        try:
            writer = await client.create(
                ensemble_size=story.quorum.ensemble_size,
                write_quorum=story.quorum.write_quorum,
                ack_quorum=story.quorum.ack_quorum,
                digest=random.choice((DigestType.CRC32C, DigestType.CRC32)),
                password=_PASSWORD,
                custom_metadata={},
                listener=writing,
            )
        except MagnetarError:
            return
        ledger_id = writer.ledger_id
        story.made.append(ledger_id)
        story.being_written[ledger_id] = None
        await self._append(writer, writing, count)
        while writer.pending_entries and writer.error is None:
            writing.news.clear()
            await writing.news.wait()
        story.being_written.pop(ledger_id, None)
        if random.random() < 0.5:
            await self._close(writer)

    async def _append(self, writer: LedgerWriter, writing: _Writing, count: int) -> None:
        history, random = self._story.history, self._random
        pause_s = random.choice((0.01, 0.05) if self._story.is_duel else (0.0, 0.002, 0.02, 0.1, 0.5))
        for _ in range(count):
            while writer.pending_entries >= _WINDOW and writer.error is None:
                writing.news.clear()
                await writing.news.wait()
            if random.random() < 0.03:
                # Idle long enough to be taken over without noticing.
                await asyncio.sleep(random.uniform(0.5, 3.0))
            if writer.error is not None:
                return
            entry_id = writer.last_add_pushed + 1
            body = b"%d:%d by %s " % (writer.ledger_id, entry_id, self._name.encode()) + b"x" * random.randrange(200)
            add = history.invoke(self._name, "add", Added(writer.ledger_id, entry_id, body))
            writing.adds.append(add)
            writer.append([body])
            if pause_s:
                await asyncio.sleep(pause_s * random.random())

    async def _close(self, writer: LedgerWriter) -> None:
        history = self._story.history
        closing = history.invoke(self._name, "close", writer.ledger_id)
        try:
            await writer.close()
            history.ok(closing, writer.last_add_confirmed)
        except MagnetarError as error:
            history.info(closing, type(error).__name__)

    async def _take_over(self, client: Ledgers, ledger_id: int) -> None:
        history = self._story.history
        opening = history.invoke(self._name, "open", ledger_id)
        try:
            reader = await client.open(ledger_id, password=_PASSWORD)
            history.ok(opening, reader.last_entry)
        except MagnetarError as error:
            history.info(opening, type(error).__name__)
            return
        await self._read(reader, reader.last_entry)

    async def _tail(self, client: Ledgers, ledger_id: int) -> None:
        try:
            reader = await client.open_without_recovery(ledger_id, password=_PASSWORD)
            before = -1
            for _ in range(self._random.randrange(1, 4)):
                confirmed = await reader.read_last_confirmed()
                if confirmed < before:
                    sentence = f"ledger {ledger_id} was confirmed up to {before}, then up to {confirmed}"
                    self._story.world.check([Violation("I18 monotonic", sentence)])
                before = confirmed
                await self._read(reader, confirmed)
            reader.close()
        except MagnetarError:
            return

    async def _read(self, reader: LedgerReader, last: int) -> None:
        history = self._story.history
        first = max(0, last - self._random.randrange(6))
        reading = history.invoke(self._name, "read", reader.ledger_id)
        try:
            history.ok(reading, await read_range(reader, first, last))
        except MagnetarError as error:
            history.info(reading, type(error).__name__)


def _drawn(random: Random) -> LedgerSettings:
    return LedgerSettings(
        add_timeout_ms=random.choice((500, 2_000)),
        read_timeout_ms=1_500,
        ensemble_change_timeout_ms=4_000,
        delay_ensemble_change=random.random() < 0.3,
        explicit_lac_interval_ms=random.choice((0, 0, 200)),
        speculative_read_timeout_ms=random.choice((0, 100)),
        sticky_reads=random.random() < 0.5,
        batch_reads=random.random() < 0.5,
        recovery_read_timeout_ms=random.choice((500, 2_000)),
        recovery_entries_in_flight_max=random.choice((1, 64)),
        metadata_retry_delay_ms=50,
        metadata_retries_max=6,
    )
