# SPDX-License-Identifier: Apache-2.0
"""`magnetar bookie`: one storage server of a cluster, and beside it the repair of what other bookies lost.

Assembles.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

from magnetar.bookie.bookie import Bookie, BookieParts
from magnetar.bookie.ledger_index import LedgerIndex
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.opening import IndexFactory
from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.cli.cluster_inventory import ClusterInventory, shown
from magnetar.cli.exposure import check_bookie_exposure
from magnetar.cli.ledger_client import LedgerClient, ledger_client
from magnetar.cli.machine import describe_memory, warn_of_disks
from magnetar.cli.role import RoleFlags, announce, cluster_store, role_settings
from magnetar.config.key import BOOKIE
from magnetar.config.load import Settings
from magnetar.errors import CannotStart, DiskFull, StorageFailed
from magnetar.ledger.auto_recovery import AutoRecovery
from magnetar.ledger.catalog import LedgerCatalog
from magnetar.ledger.own_copies import OwnCopies
from magnetar.ledger.repair_list import RepairList
from magnetar.ledger.surplus_copies import SurplusCopies
from magnetar.metadata.format_level import FormatLevel
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock, WallClock
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.tasks import Tasks

INDEX_THREADS: Final = 2
# A disk that cannot be trusted: whoever restarts the process should look at it first.
EXIT_STORAGE_FAILED: Final = 4


def run_bookie(flags: RoleFlags, given: dict[str, str | None]) -> int:
    """Serve until told to stop, or until the disk fails; returns the exit code."""
    settings = role_settings(flags, BOOKIE, given)
    check_bookie_exposure(settings, sys.stderr.write)
    start_logging(settings.runtime, sys.stderr)

    async def serve(process: Process) -> None:
        clock = SystemClock()
        random = stream(fresh_seed(), "bookie")
        try:
            async with AsyncExitStack() as opened:
                disk = RealDisk(flags.data_dir)
                opened.push_async_callback(disk.close)
                await disk.make_directory(".")
                store = await opened.enter_async_context(cluster_store(settings, disk, clock, process))
                tasks = Tasks("ledger client", process.fail)
                client = await opened.enter_async_context(ledger_client(store, settings, clock, random, tasks))
                opened.push_async_callback(tasks.close)
                inventory = ClusterInventory(store, client, clock, settings)
                inventory.describe(process.metrics)
                await client.ledgers.catalog.prepare()
                index_factory = await opened.enter_async_context(_indexes(flags, settings))
                questions = _questions(settings, store, clock, random, client)
                parts = _parts(disk, store, clock, random, process, inventory, index_factory, questions)
                parts = parts._replace(configuration=shown(settings), format_level=settings.metadata.format_level_max)
                bookie = await Bookie.open(parts, settings.bookie, settings.bookie_server)
                opened.push_async_callback(bookie.close)
                describe_memory(settings, bookies=True)
                warn_of_disks(settings.bookie, flags.data_dir)
                level = FormatLevel(store, settings.metadata.format_level_max)
                # Once more, now that whoever raises the level can see us.
                await level.check()
                tasks.start(level.follow(), "format level")
                if settings.repair.enabled:
                    owner, standing = bookie.bookie_id, client.standing(settings)
                    recovery = AutoRecovery(
                        store, client.ledgers, client.bookies, clock, settings.repair, owner, standing
                    )
                    recovery.describe(process.metrics)
                    repairs = Tasks("auto-recovery", process.fail)
                    opened.push_async_callback(repairs.close)
                    await recovery.start(repairs)
                _announce(flags, bookie)
                process.serving()
                await process.stop_requested()
        except (OSError, DiskFull) as error:
            raise CannotStart(f"The data directory {flags.data_dir} cannot be used: {error}") from error

    return run(serve, settings.runtime)


def _questions(
    settings: Settings, store: MetadataStore, clock: WallClock, random: Random, client: LedgerClient
) -> LedgerQuestions:
    catalog = LedgerCatalog(store, random, settings.ledger)

    async def existing() -> list[int]:
        return [ledger_id async for ledger_id in catalog.ledger_ids()]

    # The locks of a bookie that looks after its own copies; unique, so that it lets nobody else's go.
    repairs = RepairList(store, clock, f"own-copies-{random.getrandbits(64):016x}")
    surplus = SurplusCopies(catalog, repairs)
    own = OwnCopies(client.ledgers.parts, repairs, settings.repair)
    return LedgerQuestions(existing, catalog.exists, surplus.is_surplus, own.complete)


def _parts(
    disk: RealDisk,
    store: MetadataStore,
    clock: WallClock,
    random: Random,
    process: Process,
    inventory: ClusterInventory,
    index_factory: IndexFactory,
    questions: LedgerQuestions,
) -> BookieParts:
    return BookieParts(
        disk=disk,
        store=store,
        clock=clock,
        metrics=process.metrics,
        index_factory=index_factory,
        questions=questions,
        fresh_instance_id=str(UUID(int=random.getrandbits(128), version=4)),
        on_failed=lambda error: _fail(process, error),
        routes=inventory.routes(),
    )


@asynccontextmanager
async def _indexes(flags: RoleFlags, settings: Settings) -> AsyncIterator[IndexFactory]:
    """Opens indexes in the data directory, with threads that end with the context."""
    calls = BlockingCalls(INDEX_THREADS, name="index")

    async def index_in(directory: str) -> LedgerIndex:
        return await RocksLedgerIndex.open(str(Path(flags.data_dir) / directory), calls, settings.bookie)

    try:
        yield index_in
    finally:
        await calls.close()


def _fail(process: Process, error: BaseException) -> None:
    process.fail("bookie", error)
    if isinstance(error, StorageFailed):
        process.exit_code = EXIT_STORAGE_FAILED


def _announce(flags: RoleFlags, bookie: Bookie) -> None:
    directory = str(Path(flags.data_dir).resolve())
    served = {each.name: f"{each.host}:{each.port}" for each in bookie.endpoints}
    facts = {**served, "data directory": directory}
    announce(f"Magnetar bookie {bookie.bookie_id}", facts, flags, {"bookieId": bookie.bookie_id, **served})
