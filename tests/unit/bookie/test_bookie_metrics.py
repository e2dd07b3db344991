# SPDX-License-Identifier: Apache-2.0
"""A bookie's scrape: BookKeeper's names, and numbers that move for the right reason."""

import re
from dataclasses import replace

import pytest

from magnetar.bookie.bookie import Bookie
from magnetar.bookie.storage import BookieStorage
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Latency
from magnetar.wire.bookkeeper import v2
from tests.unit.bookie.benches import KEY, ROOMY, SMALL, Answers, packed, run
from tests.unit.bookie.ports import RawClient, bookie_on_a_port
from tests.unit.bookie.test_bookie import http

JOURNAL = [
    "QUEUE_SIZE",
    "QUEUE_LATENCY",
    "ADD_ENTRY",
    "NUM_FLUSH_MAX_WAIT",
    "NUM_FLUSH_MAX_OUTSTANDING_BYTES",
    "NUM_FLUSH_EMPTY_QUEUE",
    "FLUSH_LATENCY",
    "WRITE_BYTES",
    "FORCE_WRITE_BATCH_BYTES",
    "FORCE_WRITE_BATCH_ENTRIES",
    "FORCE_WRITE_QUEUE_SIZE",
    "FORCE_WRITE_ENQUEUE",
    "SYNC",
    "CB_QUEUE_SIZE",
]


async def scrape(bookie: Bookie) -> dict[str, float]:
    """Every series of a scrape, with its labels."""
    status, body = await http(bookie, "GET", "/metrics")
    assert status == 200
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in body.splitlines()
        if line and not line.startswith("#")
    }


def total(series: dict[str, float], name: str) -> float:
    """The sum over all labels."""
    return sum(value for key, value in series.items() if re.fullmatch(rf"{name}(\{{.*\}})?", key))


def names(series: dict[str, float]) -> set[str]:
    return {key.partition("{")[0] for key in series}


async def add_over_the_wire(bookie: Bookie, ledger_id: int, count: int) -> None:
    client = await RawClient.connect(bookie)
    for entry_id in range(count):
        entry = packed(ledger_id, entry_id)
        client.send(v2.add_front(len(entry), KEY) + entry)
    for _ in range(count):
        assert isinstance(await client.answer_2(), v2.AddResponse)
    client.close()


@pytest.mark.feature("F-MET-04", "F-MET-06")
def test_requests_and_operations_are_counted_with_their_outcome() -> None:
    async def main() -> None:
        async with bookie_on_a_port(SimulatedDisk()) as bookie:
            await add_over_the_wire(bookie, 1, 20)
            client = await RawClient.connect(bookie)
            for entry_id in (0, 1, 99):
                client.send(v2.encode_read(1, entry_id))
                await client.answer_2()
            client.close()
            series = await scrape(bookie)
            assert series['bookkeeper_server_ADD_ENTRY_REQUEST_count{success="true"}'] == 20
            assert series['bookkeeper_server_ADD_ENTRY_REQUEST_count{success="false"}'] == 0
            assert series['bookkeeper_server_READ_ENTRY_REQUEST_count{success="true"}'] == 2
            assert series['bookkeeper_server_READ_ENTRY_REQUEST_count{success="false"}'] == 1
            assert 'bookkeeper_server_ADD_ENTRY_REQUEST{success="true",quantile="0.99"}' in series
            assert series['bookkeeper_server_ADD_ENTRY_REQUEST_sum{success="true"}'] > 0
            # The journal's own records (a ledger's key) are not adds of clients.
            assert series['bookkeeper_server_ADD_ENTRY_count{success="true"}'] >= 20
            assert series["bookie_WRITE_BYTES"] >= 20 * len(packed(1, 0))
            assert series["bookie_READ_BYTES"] == 2 * len(packed(1, 0))
            assert total(series, "bookkeeper_server_READ_ENTRY_count") == 3

    run(main())


@pytest.mark.feature("F-MET-06", "F-MET-08")
def test_the_gap_between_requests_and_operations_is_what_was_rejected() -> None:
    async def main() -> None:
        disk = SimulatedDisk()
        settings = replace(SMALL, held_adds_max=4, held_adds_bytes_max=4096, journal_queue_bytes_max=1024)
        async with bookie_on_a_port(disk, settings) as bookie:
            await add_over_the_wire(bookie, 1, 1)
            before = await scrape(bookie)
            disk.kernel.faults.sync_latency = Latency(3.0)
            client = await RawClient.connect(bookie)
            for entry_id in range(1, 101):
                entry = packed(1, entry_id, bytes(200))
                client.send(v2.add_front(len(entry), KEY) + entry)
            codes = [answer.code for _ in range(100) if isinstance(answer := await client.answer_2(), v2.AddResponse)]
            client.close()
            disk.kernel.faults.sync_latency = Latency()
            after = await scrape(bookie)

            def rose(name: str) -> float:
                return total(after, name) - total(before, name)

            rejected = codes.count(106)
            assert 0 < rejected < 100
            assert rose("bookkeeper_server_ADD_ENTRY_REJECTED") == rejected
            assert rose("bookie_rejected_write_requests") == rejected
            assert rose("bookie_throttled_write_requests") > 0
            requests = rose("bookkeeper_server_ADD_ENTRY_REQUEST_count")
            assert requests == 100
            assert rose("bookkeeper_server_ADD_ENTRY_count") == requests - rejected

    run(main())


@pytest.mark.feature("F-MET-05", "F-MET-07", "F-MET-08", "F-MET-09")
def test_every_name_that_dashboards_know_is_there() -> None:
    async def main() -> None:
        async with bookie_on_a_port(SimulatedDisk(), replace(ROOMY, journal_directories=("j0", "j1"))) as bookie:
            await add_over_the_wire(bookie, 1, 5)
            await bookie.storage.checkpoint()
            series = await scrape(bookie)
            found = names(series)
            for name in JOURNAL:
                wanted = f"bookie_journal_JOURNAL_{name}"
                assert wanted in found, wanted
                assert any(key.startswith(wanted) and 'journalIndex="1"' in key for key in series)
            for pool in ("BookieWriteThreadPool", "BookieReadThreadPool"):
                for suffix in ("queue_0", "task_queued", "task_queued_count", "task_execution_count", "max_queue_size"):
                    assert f"bookkeeper_server_{pool}_{suffix}" in found
            for name in [
                "throttled_write_requests",
                "rejected_write_requests",
                "write_cache_size",
                "write_cache_count",
                "flush_count",
                "flush_size_count",
                "read_cache_hits_count",
                "read_cache_misses_count",
                "read_cache_size",
                "read_cache_count",
                "readahead_batch_count_count",
                "readahead_batch_count_sum",
                "readahead_batch_size_count",
                "read_entry_count",
            ]:
                assert f"bookie_{name}" in found, name
            assert total(series, "bookie_flush_count") >= 1
            assert total(series, "bookie_flush_size_sum") > 0

    run(main())


async def read_all(storage: BookieStorage, ledger_id: int, entries: range) -> None:
    for entry_id in entries:
        assert await storage.read(ledger_id, entry_id) == packed(ledger_id, entry_id)


@pytest.mark.feature("F-MET-09", "F-MET-10")
def test_hits_and_misses_are_reads_and_thrashing_shows() -> None:
    """The thrash query, (batches + entries read ahead) / reads, is about 1 for one reader and far more when the cache
    is too small for those that read."""

    def ratio(series: dict[str, float], before: dict[str, float]) -> float:
        def rose(name: str) -> float:
            return total(series, name) - total(before, name)

        ahead = rose("bookie_readahead_batch_count_count") + rose("bookie_readahead_batch_count_sum")
        return ahead / rose("bookie_read_entry_count")

    async def main() -> None:
        settings = replace(ROOMY, read_cache_bytes_max=1200, read_ahead_entries_max=16)
        async with bookie_on_a_port(SimulatedDisk(), settings) as bookie:
            storage = bookie.storage
            for ledger_id in (1, 2, 3, 4):
                await add_all_of(storage, ledger_id, 64)
            await storage.checkpoint()
            start = await scrape(bookie)
            await read_all(storage, 1, range(64))
            calm = await scrape(bookie)
            hits = total(calm, "bookie_read_cache_hits_count") - total(start, "bookie_read_cache_hits_count")
            misses = total(calm, "bookie_read_cache_misses_count") - total(start, "bookie_read_cache_misses_count")
            assert hits + misses == 64
            assert ratio(calm, start) < 1.5
            for entry_id in range(64):
                for ledger_id in (1, 2, 3, 4):
                    await read_all(storage, ledger_id, range(entry_id, entry_id + 1))
            assert ratio(await scrape(bookie), calm) > 5

    async def add_all_of(storage: BookieStorage, ledger_id: int, count: int) -> None:
        answers = Named()
        for entry_id in range(count):
            storage.add(ledger_id, entry_id, packed(ledger_id, entry_id), KEY, answers)
        await answers.until(count)

    run(main())


class Named(Answers):
    """A listener of a bookie with another name than the benches'."""

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        super().on_added("bookie-1:3181", first, last, code)


@pytest.mark.feature("F-MET-11", "D-29")
def test_the_known_queries_find_their_series() -> None:
    """What a dashboard's expressions select: each selector must match something after adds, reads and a flush."""
    selectors = [
        'bookkeeper_server_ADD_ENTRY_REQUEST{success="true",quantile="0.99"}',
        'bookkeeper_server_ADD_ENTRY_REQUEST_count{success="true"}',
        'bookkeeper_server_READ_ENTRY_REQUEST{success="true",quantile="0.99"}',
        'bookkeeper_server_READ_ENTRY_REQUEST_count{success="false"}',
        "bookkeeper_server_BookieWriteThreadPool_queue_0",
        "bookkeeper_server_BookieReadThreadPool_queue_0",
        'bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99",journalIndex="0"}',
        'bookie_journal_JOURNAL_SYNC_LATENCY{success="true",quantile="0.99",journalIndex="0"}',
        'bookie_journal_JOURNAL_QUEUE_SIZE{journalIndex="0"}',
        'bookie_journal_JOURNAL_CB_QUEUE_SIZE{journalIndex="0"}',
        "bookie_write_cache_size",
        "bookie_read_cache_hits_count",
        "bookie_SERVER_STATUS",
    ]

    def labelled(text: str) -> tuple[str, frozenset[str]]:
        name, _, labels = text.partition("{")
        return name, frozenset(labels.rstrip("}").split(",")) - {""}

    async def main() -> None:
        async with bookie_on_a_port(SimulatedDisk()) as bookie:
            await add_over_the_wire(bookie, 1, 5)
            await bookie.storage.checkpoint()
            series = [(labelled(key), value) for key, value in (await scrape(bookie)).items()]
            for selector in selectors:
                name, labels = labelled(selector)
                assert any(found == name and labels <= have for (found, have), _ in series), selector
            numbers = dict(series)
            wanted = 'bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99",journalIndex="0"}'
            sync = next(value for key, value in numbers.items() if key == labelled(wanted))
            assert sync == sync, "a quantile of syncs that happened is a number"

    run(main())


@pytest.mark.feature("F-MET-14")
def test_a_queue_that_was_full_for_a_moment_shows_at_the_next_scrape() -> None:
    async def spike() -> None:
        async with bookie_on_a_port(SimulatedDisk()) as bookie:
            await add_over_the_wire(bookie, 1, 200)
            series = await scrape(bookie)
            assert series["bookkeeper_server_BookieWriteThreadPool_queue_0"] == 0, "empty again at the scrape"
            assert series["bookkeeper_server_BookieWriteThreadPool_queue_0_peak"] > 0
            bookie.storage.counts.rotate()
            bookie.storage.counts.rotate()
            assert (await scrape(bookie))["bookkeeper_server_BookieWriteThreadPool_queue_0_peak"] == 0

    run(spike())
