# SPDX-License-Identifier: Apache-2.0
"""Records of transactions in batches: Pulsar's bytes, read whatever the settings are, told when they are durable."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.transactions.record_batch import BatchLimits, entry_of, records_in
from magnetar.broker.transactions.record_log import RecordLog
from magnetar.errors import DamagedRecord, LedgerFenced, ServiceNotReady
from magnetar.ids import Position
from magnetar.wire.proto.transaction_metadata_pb2 import BatchedTransactionMetadataEntry, TransactionMetadataEntry
from tests.unit.broker.transactions.world import TransactionWorld

NEW = bytes.fromhex("08001007180340e0d403484d504d5807")
ADD = bytes.fromhex("080110071803321270657273697374656e743a2f2f612f622f74504e5807")
# The example of docs/formats/transactions.md.
BATCH = bytes.fromhex("0e0100010a10") + NEW + bytes.fromhex("0a1e") + ADD
RARELY = BatchLimits(records_max=4, bytes_max=1_000, delay_ms=60_000)
NAME = "public/default/persistent/records"


@pytest.mark.feature("B-18")
def test_a_batch_has_the_bytes_that_the_format_names() -> None:
    assert entry_of([NEW, ADD]) == BATCH
    assert records_in(BATCH) == [NEW, ADD]
    assert entry_of([NEW]) == NEW
    assert records_in(NEW) == [NEW]
    theirs = BatchedTransactionMetadataEntry.FromString(BATCH[4:])
    assert list(theirs.transaction_logs) == [TransactionMetadataEntry.FromString(each) for each in (NEW, ADD)]


@pytest.mark.feature("B-18")
@given(st.lists(st.binary(max_size=300).map(lambda tail: b"\x08" + tail), min_size=1, max_size=20))
def test_what_was_put_together_comes_apart(records: list[bytes]) -> None:
    assert records_in(entry_of(records)) == records


@pytest.mark.feature("B-18")
@pytest.mark.parametrize(
    "damaged",
    [BATCH[:-1], b"\x0e\x01\x00\x02" + BATCH[4:], BATCH[:4] + b"\x12" + BATCH[5:], BATCH[:4] + b"\x0a" + b"\xff" * 11],
    ids=["cut", "version", "field", "length"],
)
def test_a_damaged_batch_is_refused(damaged: bytes) -> None:
    with pytest.raises(DamagedRecord):
        records_in(damaged)


class LedgerTwin:
    def __init__(self) -> None:
        self.appended: list[bytes] = []
        self.refusal: Exception | None = None

    def append(self, parts: tuple[bytes, ...]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.appended.append(b"".join(parts))


def log_over(ledger: Any, limits: BatchLimits) -> RecordLog:
    log = RecordLog("log", limits)
    log.ledger = ledger
    return log


@pytest.mark.feature("B-18")
def test_a_batch_ends_by_records_by_bytes_by_time_and_when_it_is_cut() -> None:
    async def test() -> None:
        ledger = LedgerTwin()
        log = log_over(ledger, RARELY)
        places: list[Position] = []
        for number in range(5):
            log.append(b"\x08" + bytes((number,)), places.append)
        assert [len(records_in(entry)) for entry in ledger.appended] == [4]
        log.append(b"\x08" * 999, places.append)
        assert [len(records_in(entry)) for entry in ledger.appended] == [4, 1], "it would have been too large"
        log.cut()
        log.cut()
        assert [len(records_in(entry)) for entry in ledger.appended] == [4, 1, 1]
        first = asyncio.create_task(log.synced())
        log.on_persisted(7, 0, 1)
        await asyncio.sleep(0)
        assert not first.done()
        log.on_persisted(7, 2, 2)
        await first
        assert places == [Position(7, 0)] * 4 + [Position(7, 1), Position(7, 2)]

        quick = log_over(LedgerTwin(), BatchLimits(records_max=100, bytes_max=1_000, delay_ms=1))
        quick.append(b"\x08")
        waiting = asyncio.create_task(quick.synced())
        while not quick.ledger.appended:  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0)
        quick.on_persisted(7, 0, 0)
        await waiting

    asyncio.run(test())


@pytest.mark.feature("B-18")
def test_a_batch_that_the_log_does_not_take_fails_for_all_its_records() -> None:
    async def test() -> None:
        ledger = LedgerTwin()
        log = log_over(ledger, RARELY)
        failures: list[object] = []
        log.on_failed = failures.append
        log.append(b"\x081")
        log.append(b"\x082")
        waiting = asyncio.create_task(log.synced())
        await asyncio.sleep(0)
        ledger.refusal = LedgerFenced("another owner")
        log.cut()
        with pytest.raises(ServiceNotReady):
            await waiting
        with pytest.raises(ServiceNotReady):
            log.append(b"\x083")
        assert len(failures) == 1

    asyncio.run(test())


@pytest.mark.feature("B-18")
def test_a_log_is_read_by_one_who_writes_otherwise() -> None:
    async def test() -> None:
        world = TransactionWorld(ledger_entries_max=3)
        topics = await world.start()
        written: list[bytes] = []
        for limits in (None, RARELY, None, BatchLimits(2, 1_000, 60_000)):
            log = await RecordLog.open(topics.managed_ledgers, NAME, "c", limits)
            assert [data async for _, data in log.records()] == written
            records = [b"\x08" + str(len(written) + number).encode() for number in range(7)]
            for record in records:
                log.append(record)
            written += records
            log.cut()
            await log.synced()
            await log.close()
        await world.topics.close()

    asyncio.run(test())
