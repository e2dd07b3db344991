# SPDX-License-Identifier: Apache-2.0
"""Entry logs as files: rolled at their size, mapped at their end, read within a bound of open files."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from magnetar.bookie.entry_log import EntryLogs
from magnetar.bookie.entry_log_format import RECORD_OVERHEAD_BYTES, BadRange, EntryLogScan, LoggedEntry
from magnetar.bookie.ledger_index import ROW, Place
from magnetar.errors import EntryUnknown
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall, DiskFaults, Latency
from tests.unit.bookie.benches import SMALL, packed, run

SETTINGS = replace(SMALL, entry_log_bytes_max=1024, open_entry_logs_max=2)
ENTRIES = [(ledger_id, entry_id, packed(ledger_id, entry_id)) for ledger_id in (1, 2) for entry_id in range(30)]
BY_LEDGER = [[entry for owner, _, entry in ENTRIES if owner == ledger_id] for ledger_id in (1, 2)]
SIZE = len(packed(1, 0)) + RECORD_OVERHEAD_BYTES


async def _written(disk: SimulatedDisk, *, finish: bool = True) -> tuple[EntryLogs, dict[tuple[int, int], Place]]:
    await disk.make_directory("d")
    logs = await EntryLogs.open(disk, "d", SETTINGS)
    writer = logs.writer()
    assert writer.log_id is None
    rows = bytearray()
    await writer.append(BY_LEDGER, rows)
    await writer.sync()
    assert writer.log_id == logs.log_ids()[-1]
    if finish:
        await writer.finish()
    else:
        await writer.abandon()
    places = {(ledger_id, entry_id): Place(entry_id, *rest) for ledger_id, entry_id, *rest in ROW.iter_unpack(rows)}
    return logs, places


@pytest.mark.feature("F-BKS-18")
@pytest.mark.parametrize("finish", [True, False])
def test_entries_are_spread_over_logs_that_know_their_ledgers(finish: bool) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        logs, places = await _written(disk, finish=finish)
        assert len(logs.log_ids()) > 2
        for ledger_id, entry_id, entry in ENTRIES:
            assert await logs.read(ledger_id, places[ledger_id, entry_id]) == entry
        total: dict[int, int] = {}
        for log_id in logs.log_ids():
            for ledger_id, size in (await logs.bytes_by_ledger(log_id)).items():
                total[ledger_id] = total.get(ledger_id, 0) + size
        assert total == {1: 30 * SIZE, 2: 30 * SIZE}
        again = await EntryLogs.open(disk, "d", SETTINGS)
        assert again.log_ids() == logs.log_ids()
        assert again.next_log_id == logs.next_log_id
        await logs.close()

    run(scenario())


def test_what_is_written_out_is_synced_in_small_steps() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        await disk.make_directory("d")
        settings = replace(
            SETTINGS, entry_log_bytes_max=1 << 20, entry_log_write_bytes=SIZE, entry_log_unsynced_bytes_max=10 * SIZE
        )
        logs = await EntryLogs.open(disk, "d", settings)
        writer = logs.writer()
        calls: list[Call] = []
        disk.kernel.faults.on_call = lambda call: calls.append(call.call) if call.path.endswith(".log") else None
        await writer.append(BY_LEDGER, bytearray())
        steps = "".join("s" if call is Call.SYNC else "w" for call in calls if call in (Call.SYNC, Call.WRITE))
        # The first write is the log's header.
        assert steps == "w" + ("w" * 10 + "s") * (len(ENTRIES) // 10)
        await writer.finish()
        await logs.close()

    run(scenario())


def test_a_scan_gives_every_entry_and_stops_before_the_map() -> None:
    async def scenario() -> None:
        logs, _ = await _written(SimulatedDisk())
        found: list[LoggedEntry | BadRange] = []
        for log_id in logs.log_ids():
            found += [item async for item in logs.scan(log_id)]
        assert [item.entry for item in found if isinstance(item, LoggedEntry)] == [entry for _, _, entry in ENTRIES]
        assert not [item for item in found if isinstance(item, BadRange)]

    run(scenario())


def test_a_scan_lets_others_in_between_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of small entries held the loop for three milliseconds, at each step of a compaction."""
    monkeypatch.setattr("magnetar.bookie.entry_log._CUT_BYTES", 4 * SIZE)

    async def scenario() -> None:
        disk = SimulatedDisk()
        await disk.make_directory("d")
        logs = await EntryLogs.open(disk, "d", replace(SETTINGS, entry_log_bytes_max=1 << 20))
        writer = logs.writer()
        await writer.append(BY_LEDGER, bytearray())
        await writer.finish()
        held: list[int] = [0]
        ended = asyncio.Event()

        async def others() -> None:
            while not ended.is_set():
                held.append(0)
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        feed, fed = EntryLogScan.feed, []

        def fed_whole(self: EntryLogScan, data: bytes) -> Iterator[LoggedEntry | BadRange]:
            fed.append(len(data))
            return feed(self, data)

        monkeypatch.setattr(EntryLogScan, "feed", fed_whole)
        async for _ in logs.scan(0):
            held[-1] += 1
        assert len(fed) == 1, "fed in small pieces, a large entry is put together as often as it has pieces"
        ended.set()
        await beside
        assert sum(held) == len(ENTRIES)
        assert max(held) <= 5
        await logs.close()

    run(scenario())


def test_few_files_stay_open_however_many_reads_there_are() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk(faults=DiskFaults(read_latency=Latency(0.1, 0.2), name_latency=Latency(0.0, 0.1)))
        logs, places = await _written(disk)
        reads = (logs.read(ledger_id, places[ledger_id, entry_id]) for ledger_id, entry_id, _ in ENTRIES)
        assert await asyncio.gather(*reads) == [entry for _, _, entry in ENTRIES]
        assert len(logs._open) <= 2
        await logs.close()
        assert not logs._open

    run(scenario())


def test_a_removed_log_is_not_found_and_a_wrong_place_is_unknown() -> None:
    async def scenario() -> None:
        logs, places = await _written(SimulatedDisk())
        with pytest.raises(EntryUnknown):
            await logs.read(2, places[1, 0])
        with pytest.raises(EntryUnknown):
            await logs.read(1, places[1, 0]._replace(entry_bytes=7))
        await logs.remove(places[1, 0].log_id)
        with pytest.raises(FileNotFoundError):
            await logs.read(1, places[1, 0])

    run(scenario())


@pytest.mark.feature("F-BKS-18")
@pytest.mark.parametrize(("hurried", "syncs"), [(False, 15), (True, 1)])
def test_a_flush_is_synced_in_small_steps_unless_adds_would_wait_for_it(hurried: bool, syncs: int) -> None:
    """Sixty records, a write each; a step is four of them, or eight times as many."""
    settings = replace(
        SETTINGS, entry_log_bytes_max=1 << 20, entry_log_write_bytes=1, entry_log_unsynced_bytes_max=4 * SIZE
    )
    seen: list[DiskCall] = []

    async def scenario() -> None:
        disk = SimulatedDisk()
        await disk.make_directory("d")
        logs = await EntryLogs.open(disk, "d", settings)
        writer = logs.writer()
        disk.kernel.faults.on_call = seen.append
        await writer.append(BY_LEDGER, bytearray(), lambda: hurried)
        disk.kernel.faults.on_call = None
        await writer.abandon()
        await logs.close()

    run(scenario())
    assert sum(call.call is Call.SYNC for call in seen) == syncs
