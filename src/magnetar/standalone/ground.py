# SPDX-License-Identifier: Apache-2.0
"""What brokers of one machine stand on: embedded metadata and one bookie over its disks, in one process.

The data directory is locked as long as this is open. A standalone's broker uses it by plain calls; workers come through
its doors. The bytes are the same, so that a directory may be used either way.
Assembles.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.opening import IndexFactory
from magnetar.bookie.plain_index import PlainLedgerIndex
from magnetar.bookie.storage import BookieStorage
from magnetar.broker.publish_budget import MESSAGE_OVERHEAD_BYTES
from magnetar.config.bookie import BookieSettings
from magnetar.config.load import Settings
from magnetar.errors import StorageFailed
from magnetar.ledger.catalog import LedgerCatalog
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.metadata.format_level import FormatLevel
from magnetar.metadata.store import SessionEvent
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.tasks import Tasks

BOOKIE: Final = "127.0.0.1:3181"


class Ground(NamedTuple):
    store: EmbeddedStore
    storage: BookieStorage
    tasks: Tasks
    format_level: FormatLevel


async def open_ground(
    opened: AsyncExitStack,
    disk: Disk,
    settings: Settings,
    *,
    clock: WallClock,
    random: Random,
    on_failed: Callable[[BaseException], None],
    index_factory: IndexFactory | None = None,
) -> Ground:
    """Open metadata and storage; what was opened is closed by `opened`. `on_failed` is told when a disk has failed."""
    await disk.make_directory(".")
    lock = await disk.lock("LOCK")
    opened.push_async_callback(lock.release)
    store = await EmbeddedStore.open(disk, "metadata", clock=clock, settings=settings.metadata)
    opened.push_async_callback(store.close)
    store.watch_session(lambda event: _end_with_session(event, on_failed))
    format_level = FormatLevel(store, settings.metadata.format_level_max)
    await format_level.check()
    catalog = LedgerCatalog(store, random, settings.ledger)
    await catalog.prepare()
    storage = await BookieStorage.open(
        disk,
        room_for_brokers(settings),
        bookie=BOOKIE,
        clock=clock,
        index_factory=index_factory or (lambda directory: PlainLedgerIndex.open(disk, directory)),
        on_failed=on_failed,
        questions=LedgerQuestions(lambda: _existing(catalog), catalog.exists),
    )
    opened.push_async_callback(storage.close)
    tasks = Tasks("standalone", lambda _, error: on_failed(error))
    opened.push_async_callback(tasks.close)
    return Ground(store, storage, tasks, format_level)


def room_for_brokers(settings: Settings) -> BookieSettings:
    """The bookie holds all that brokers of this machine may have on its way, which is their memory and bounded there.

    Refused adds would be failed ledgers, and what was refused would come again, as much at once, in the next one.
    """
    bookie, bytes_max = settings.bookie, settings.broker.process_publish_bytes_max
    return replace(
        bookie,
        held_adds_max=max(bookie.held_adds_max, bytes_max // MESSAGE_OVERHEAD_BYTES),
        held_adds_bytes_max=max(bookie.held_adds_bytes_max, bytes_max),
    )


async def _existing(catalog: LedgerCatalog) -> list[int]:
    return [ledger_id async for ledger_id in catalog.ledger_ids()]


def _end_with_session(event: SessionEvent, on_failed: Callable[[BaseException], None]) -> None:
    """The embedded store's session is lost only when its disk has failed, for good."""
    if event is SessionEvent.LOST:
        on_failed(StorageFailed("the metadata store could not be written"))
