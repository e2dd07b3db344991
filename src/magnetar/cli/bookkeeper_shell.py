# SPDX-License-Identifier: Apache-2.0
"""What the commands of the storage shell do, on a cluster's metadata and its bookies; they print, line by line.

Assembles.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Final, NamedTuple

from magnetar.cli.described import described
from magnetar.cli.exits import INTERRUPTED
from magnetar.cli.ledger_client import LedgerClient, ledger_client
from magnetar.cli.role import RoleFlags, cluster_store, role_settings
from magnetar.config.key import BOOKIE
from magnetar.config.load import Settings
from magnetar.errors import BookieUnavailable, MagnetarError, NoSuchLedger
from magnetar.ledger.auditor_election import current_auditor
from magnetar.ledger.auto_recovery import AutoRecovery
from magnetar.ledger.health_switch import is_health_checked, set_health_checked
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.paths import COOKIES, ROOT
from magnetar.ledger.placement import Placement, RandomPlacement
from magnetar.ledger.record import LedgerRecord, LedgerState
from magnetar.ledger.repair_list import RepairList
from magnetar.ledger.writer import LedgerWriter
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.loop import Process, run
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.digest import DigestType

Print = Callable[[str], None]
_READ_BYTES_MAX: Final = 4 * 1024 * 1024
_READ_ENTRIES: Final = 100


class Shell(NamedTuple):
    """What a command works with."""

    store: MetadataStore
    client: LedgerClient
    recovery: AutoRecovery
    settings: Settings
    clock: SystemClock
    random: Random
    tasks: Tasks
    say: Print


def run_shell(metadata: str, command: Callable[[Shell], Awaitable[None]], say: Print) -> int:
    """Run one command; its own errors are sentences, and exit code 1. Ctrl-C ends it where it is."""
    settings = role_settings(RoleFlags(".", metadata), BOOKIE, {})
    failed: list[MagnetarError] = []

    async def main(process: Process) -> None:
        working = asyncio.current_task()
        assert working is not None

        def interrupt() -> None:
            working.cancel()

        process.when_stopping(interrupt)
        try:
            async with _opened(settings, process, say) as shell:
                await command(shell)
        except MagnetarError as error:
            failed.append(error)
        except asyncio.CancelledError:
            if not process.is_stopping:
                raise
            working.uncancel()
            process.exit_code = INTERRUPTED
        except BrokenPipeError:
            # Whoever read our output has enough; the interpreter must not try to flush it again.
            sys.stdout = None

    code = run(main, settings.runtime)
    if failed:
        raise failed[0]
    return code


@asynccontextmanager
async def _opened(settings: Settings, process: Process, say: Print) -> AsyncIterator[Shell]:
    clock = SystemClock()
    random = stream(fresh_seed(), "shell")
    async with AsyncExitStack() as opened:
        disk = RealDisk(".")
        opened.push_async_callback(disk.close)
        store = await opened.enter_async_context(cluster_store(settings, disk, clock, process))
        tasks = Tasks("shell", process.fail)
        client = await opened.enter_async_context(ledger_client(store, settings, clock, random, tasks))
        opened.push_async_callback(tasks.close)
        owner = f"shell-{random.getrandbits(32):08x}"
        recovery = AutoRecovery(store, client.ledgers, client.bookies, clock, settings.repair, owner)
        yield Shell(store, client, recovery, settings, clock, random, tasks, say)


# --- looking ----------------------------------------------------------------------------------


async def list_bookies(shell: Shell, *, writable: bool, read_only: bool, known: bool) -> None:
    bookies = shell.client.bookies
    for title, wanted, found in (
        ("ReadWrite Bookies :", writable, bookies.writable),
        ("Readonly Bookies :", read_only, bookies.read_only),
        ("All Bookies :", known, tuple(await bookies.known()) if known else ()),
    ):
        if wanted:
            shell.say(title)
            for bookie in sorted(found):
                shell.say(f"BookieID:{bookie}")


async def list_ledgers(shell: Shell, *, with_metadata: bool, bookie: str | None) -> None:
    catalog = shell.client.ledgers.catalog
    async for ledger_id in catalog.ledger_ids():
        if not with_metadata and bookie is None:
            shell.say(str(ledger_id))
            continue
        try:
            record = (await catalog.load(ledger_id)).record
        except NoSuchLedger:
            continue
        if bookie is None or bookie in record.bookies():
            shell.say(f"ledgerID: {ledger_id}" + (f"  {json.dumps(described(record))}" if with_metadata else ""))


async def ledger_metadata(shell: Shell, ledger_id: int) -> None:
    record = (await shell.client.ledgers.catalog.load(ledger_id)).record
    shell.say(f"ledgerID: {ledger_id}")
    shell.say(json.dumps(described(record)))


async def read_ledger(shell: Shell, ledger_id: int, first: int, last: int | None, *, with_body: bool) -> None:
    """Entries up to the end, or up to what is confirmed of an open ledger. Fences nothing."""
    ledgers = shell.client.ledgers
    password = (await ledgers.catalog.load(ledger_id)).record.password
    reader = await ledgers.open_without_recovery(ledger_id, password=password)
    end = reader.last_entry if reader.is_closed else await reader.read_last_confirmed()
    if not reader.is_closed:
        known = f"confirmed up to entry {end}" if end >= 0 else "nothing of it is confirmed to readers yet"
        sys.stderr.write(f"Ledger {ledger_id} is still written: {known}.\n")
    if last is not None and last >= 0:
        end = min(end, last)
    entry_id = first
    while entry_id <= end:
        bodies = await reader.read(entry_id, min(end, entry_id + _READ_ENTRIES - 1), bytes_max=_READ_BYTES_MAX)
        for body in bodies:
            shell.say(f"Ledger: {ledger_id}, Entry: {entry_id}, Bytes: {len(body)}")
            if with_body:
                shell.say(bytes(body).hex(" "))
            entry_id += 1
    reader.close()


async def who_is_auditor(shell: Shell) -> None:
    auditor = await current_auditor(shell.store)
    shell.say("No auditor elected" if auditor is None else f"Auditor: {auditor}")


async def list_under_replicated(shell: Shell, missing: str | None, excluding: str | None) -> None:
    async for ledger_id in shell.recovery.repairs.marked():
        mark = await shell.recovery.repairs.look(ledger_id)
        if mark is not None and missing in (None, *mark.missing) and excluding not in mark.missing:
            shell.say(f"{ledger_id}  missing: {', '.join(mark.missing)}")


async def trigger_audit(shell: Shell) -> None:
    await shell.recovery.repairs.ask_for_audit()
    shell.say("The auditor is asked to look.")


async def bookie_info(shell: Shell) -> None:
    shell.say("Free disk space info:")
    totals = [0, 0]
    for bookie in (*shell.client.bookies.writable, *shell.client.bookies.read_only):
        total, free = await shell.client.channels(bookie).space()
        totals = [totals[0] + total, totals[1] + free]
        shell.say(f"{bookie}:\tFree: {free} ({free / 1e9:.3f}GB)\tTotal: {total} ({total / 1e9:.3f}GB)")
    shell.say(f"Total free disk space in the cluster:\t{totals[1]} ({totals[1] / 1e9:.3f}GB)")
    shell.say(f"Total disk capacity in the cluster:\t{totals[0]} ({totals[0] / 1e9:.3f}GB)")


async def lost_bookie_delay(shell: Shell, seconds: int | None) -> None:
    repairs = RepairList(shell.store, shell.clock, "shell")
    if seconds is not None:
        await repairs.set_lost_bookie_delay_s(seconds)
    shell.say(f"lostBookieRecoveryDelay value in metadata: {await repairs.lost_bookie_delay_s() or 0}")


async def autorecovery(shell: Shell, enabled: bool | None) -> None:
    repairs = shell.recovery.repairs
    if enabled is True:
        await repairs.enable()
    elif enabled is False:
        await repairs.disable()
    shell.say(f"Autorecovery is {'enabled' if await repairs.is_enabled() else 'disabled'}.")


async def health_check(shell: Shell, enabled: bool | None) -> None:
    if enabled is not None:
        await set_health_checked(shell.store, enabled)
    shell.say(f"Health checks of bookies are {'enabled' if await is_health_checked(shell.store) else 'disabled'}.")


# --- trying -----------------------------------------------------------------------------------


class Confirmations:
    """Waits until a writer's entries are safe."""

    def __init__(self) -> None:
        self._wanted: tuple[int, asyncio.Future[None]] | None = None
        self._confirmed = -1
        self._error: MagnetarError | None = None

    def on_confirmed(self, writer: LedgerWriter, entry_id: int) -> None:
        self._confirmed = entry_id
        self._tell()

    def on_failed(self, writer: LedgerWriter, error: MagnetarError) -> None:
        self._error = error
        self._tell()

    async def until(self, entry_id: int) -> None:
        self._wanted = (entry_id, asyncio.get_running_loop().create_future())
        self._tell()
        await self._wanted[1]

    def _tell(self) -> None:
        if self._wanted is None or self._wanted[1].done():
            return
        entry_id, future = self._wanted
        if self._confirmed >= entry_id:
            future.set_result(None)
        elif self._error is not None:
            future.set_exception(self._error)


async def simple_test(shell: Shell, ensemble: int, write_quorum: int, ack_quorum: int, entries: int) -> None:
    """Write a ledger, read it back, compare, delete it."""
    await _write_and_read(shell, shell.client.ledgers, ensemble, write_quorum, ack_quorum, entries)


async def bookie_sanity(shell: Shell, bookie: str, entries: int) -> None:
    """The same with one bookie alone."""
    if bookie not in (*shell.client.bookies.writable, *shell.client.bookies.read_only):
        raise BookieUnavailable(f"Bookie {bookie} is not listed: it does not run, or is called otherwise.")
    placement: Placement = RandomPlacement(lambda: (bookie,), shell.random)
    ledgers = Ledgers(
        shell.store, shell.client.channels, placement, shell.clock, shell.random, shell.tasks, shell.settings.ledger
    )
    await _write_and_read(shell, ledgers, 1, 1, 1, entries)


async def _write_and_read(shell: Shell, ledgers: Ledgers, ensemble: int, write: int, ack: int, entries: int) -> None:
    confirmations = Confirmations()
    writer = await ledgers.create(
        ensemble_size=ensemble,
        write_quorum=write,
        ack_quorum=ack,
        digest=DigestType.CRC32C,
        password=b"",
        custom_metadata={},
        listener=confirmations,
    )
    shell.say(f"Ledger ID: {writer.ledger_id}")
    for start in range(0, entries, _READ_ENTRIES):
        for i in range(start, min(entries, start + _READ_ENTRIES)):
            writer.append([_body(i)])
        await confirmations.until(writer.last_add_pushed)
    await writer.close()
    reader = await ledgers.open(writer.ledger_id, password=b"")
    seen = 0
    while seen < entries:
        bodies = await reader.read(seen, min(entries, seen + _READ_ENTRIES) - 1, bytes_max=_READ_BYTES_MAX)
        for body in bodies:
            if bytes(body) != _body(seen):
                raise BookieUnavailable(f"Entry {seen} of ledger {writer.ledger_id} came back as something else.")
            seen += 1
    reader.close()
    await ledgers.delete(writer.ledger_id)
    shell.say(f"{entries} entries written to ledger {writer.ledger_id}, read back and compared")


def _body(entry_id: int) -> bytes:
    return b"entry %d of a test" % entry_id


# --- changing ---------------------------------------------------------------------------------


class Recovered(NamedTuple):
    """Which ledgers `recover` moves off a bookie, and what else it does."""

    ledger_id: int | None = None
    dry_run: bool = False
    skip_open: bool = False
    delete_cookie: bool = False
    force: bool = False


async def recover(shell: Shell, bookie: str, wanted: Recovered) -> None:
    """Copy what a lost bookie should hold to others, ledger by ledger."""
    runs = bookie in (*shell.client.bookies.writable, *shell.client.bookies.read_only)
    if runs and not (wanted.force or wanted.dry_run):
        raise BookieUnavailable(
            f"Bookie {bookie} runs, and ledgers that are written now would be closed under their writers: "
            "stop it first, or say --force."
        )
    count = 0
    async for ledger_id, record in _ledgers_on(shell, bookie):
        if wanted.ledger_id not in (None, ledger_id) or (wanted.skip_open and record.state is not LedgerState.CLOSED):
            continue
        count += 1
        if not wanted.dry_run:
            await shell.recovery.replicator.move_off(ledger_id, bookie)
        shell.say(f"ledger {ledger_id} {'would be moved' if wanted.dry_run else 'was moved'} off {bookie}")
    if not count:
        await _check_known(shell, bookie)
    shell.say(f"{count} ledgers")
    if wanted.delete_cookie and not wanted.dry_run:
        await cookie_delete(shell, bookie)


async def decommission(shell: Shell, bookie: str) -> None:
    if bookie in (*shell.client.bookies.writable, *shell.client.bookies.read_only):
        raise BookieUnavailable(f"Bookie {bookie} runs; stop it first.")
    if await anext(_ledgers_on(shell, bookie), None) is None:
        await _check_known(shell, bookie)
    await shell.recovery.decommission(bookie)
    shell.say(f"The ledgers of {bookie} are on other bookies now, and its cookie is deleted.")


async def _ledgers_on(shell: Shell, bookie: str) -> AsyncIterator[tuple[int, LedgerRecord]]:
    catalog = shell.client.ledgers.catalog
    async for ledger_id in catalog.ledger_ids():
        try:
            record = (await catalog.load(ledger_id)).record
        except NoSuchLedger:
            continue
        if bookie in record.bookies():
            yield ledger_id, record


async def _check_known(shell: Shell, bookie: str) -> None:
    """BookieUnavailable for a name that nobody has had: it is misspelt."""
    if bookie not in await shell.client.bookies.known():
        raise BookieUnavailable(
            f"There is no bookie {bookie}: no ledger and no cookie names it (`listbookies --all` lists those that are)."
        )


async def cookie_show(shell: Shell, bookie: str) -> None:
    record = await shell.store.get(f"{COOKIES}/{bookie}")
    if record is None:
        raise BookieUnavailable(f"There is no cookie of {bookie}.")
    shell.say(record.value.decode(errors="replace"))


async def cookie_delete(shell: Shell, bookie: str) -> None:
    if await shell.store.get(f"{COOKIES}/{bookie}") is None:
        raise BookieUnavailable(f"There is no cookie of {bookie}.")
    await shell.store.delete(f"{COOKIES}/{bookie}")
    shell.say(f"The cookie of {bookie} is deleted: it may start with empty directories.")


async def format_metadata(shell: Shell) -> None:
    """Forget every ledger. What they held is collected by bookies, and lost."""
    await shell.store.delete_recursive(ROOT)
    await shell.client.ledgers.catalog.prepare()
    shell.say("BookKeeper's metadata is empty.")
