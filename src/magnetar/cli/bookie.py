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
from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.cli.ledger_client import ledger_client
from magnetar.cli.role import RoleFlags, announce, cluster_store, role_settings
from magnetar.config.key import BOOKIE
from magnetar.config.load import Settings
from magnetar.errors import CannotStart, DiskFull, StorageFailed
from magnetar.ledger.auto_recovery import AutoRecovery
from magnetar.ledger.catalog import LedgerCatalog
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
    start_logging(settings.runtime, sys.stderr)

    async def serve(process: Process) -> None:
        clock = SystemClock()
        random = stream(fresh_seed(), "bookie")
        try:
            async with AsyncExitStack() as opened:
                disk = RealDisk(flags.data_dir)
                opened.push_async_callback(disk.close)
                await disk.make_directory(".")
                store = await opened.enter_async_context(cluster_store(settings, disk, clock))
                bookie = await opened.enter_async_context(_bookie(flags, settings, disk, store, clock, random, process))
                if settings.repair.enabled:
                    await opened.enter_async_context(
                        _repairs(settings, store, clock, random, bookie.bookie_id, process)
                    )
                _announce(flags, bookie)
                process.serving()
                await process.stop_requested()
        except (OSError, DiskFull) as error:
            raise CannotStart(f"The data directory {flags.data_dir} cannot be used: {error}") from error

    return run(serve, settings.runtime)


@asynccontextmanager
async def _bookie(
    flags: RoleFlags,
    settings: Settings,
    disk: RealDisk,
    store: MetadataStore,
    clock: WallClock,
    random: Random,
    process: Process,
) -> AsyncIterator[Bookie]:
    catalog = LedgerCatalog(store, random, settings.ledger)
    await catalog.prepare()
    calls = BlockingCalls(INDEX_THREADS, name="index")

    async def index_in(directory: str) -> LedgerIndex:
        return await RocksLedgerIndex.open(str(Path(flags.data_dir) / directory), calls)

    async def existing() -> list[int]:
        return [ledger_id async for ledger_id in catalog.ledger_ids()]

    parts = BookieParts(
        disk=disk,
        store=store,
        clock=clock,
        metrics=process.metrics,
        index_factory=index_in,
        questions=LedgerQuestions(existing, catalog.exists),
        fresh_instance_id=str(UUID(int=random.getrandbits(128), version=4)),
        on_failed=lambda error: _fail(process, error),
    )
    try:
        bookie = await Bookie.open(parts, settings.bookie, settings.bookie_server)
        try:
            yield bookie
        finally:
            await bookie.close()
    finally:
        await calls.close()


@asynccontextmanager
async def _repairs(
    settings: Settings, store: MetadataStore, clock: WallClock, random: Random, owner: str, process: Process
) -> AsyncIterator[None]:
    """Restore the copies of lost bookies, together with the other bookies that do the same."""
    tasks = Tasks("auto-recovery", process.fail)
    try:
        async with ledger_client(store, settings, clock, random, tasks) as client:
            recovery = AutoRecovery(store, client.ledgers, client.bookies, clock, settings.repair, owner)
            await recovery.start(tasks)
            try:
                yield
            finally:
                await tasks.close()
    finally:
        await tasks.close()


def _fail(process: Process, error: BaseException) -> None:
    process.fail("bookie", error)
    if isinstance(error, StorageFailed):
        process.exit_code = EXIT_STORAGE_FAILED


def _announce(flags: RoleFlags, bookie: Bookie) -> None:
    directory = str(Path(flags.data_dir).resolve())
    served = {each.name: f"{each.host}:{each.port}" for each in bookie.endpoints}
    facts = {**served, "data directory": directory}
    announce(f"Magnetar bookie {bookie.bookie_id}", facts, flags, {"bookieId": bookie.bookie_id, **served})
