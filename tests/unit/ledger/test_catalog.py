# SPDX-License-Identifier: Apache-2.0
"""Ledger records in the store: paths, ids, versions, and answers that never came."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.config.ledger import LedgerSettings
from magnetar.errors import BadVersion, MetadataError, NoSuchLedger
from magnetar.ledger.catalog import LedgerCatalog
from magnetar.ledger.paths import (
    LAYOUT,
    LONG_ID_GENERATOR,
    ledger_id_at,
    ledger_path,
    repair_path,
    repaired_ledger_at,
)
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.segments import Segment
from magnetar.metadata.memory import MemoryTree
from magnetar.wire.bookkeeper.digest import DigestType
from tests.unit.ledger.faulty_store import FaultOnce, FaultyStore

SETTINGS = LedgerSettings(metadata_retry_delay_ms=0, metadata_retries_max=3)


def new_record(ledger_id: int, token: int = 0) -> LedgerRecord:
    return LedgerRecord(
        ledger_id=ledger_id,
        quorum=Quorum(2, 2, 1),
        segments=(Segment(0, ("b1:3181", "b2:3181")),),
        digest=DigestType.CRC32C,
        password=b"secret",
        created_ms=1_700_000_000_000,
        token=token,
        custom={"application": b"pulsar"},
    )


def catalog(store: FaultyStore) -> LedgerCatalog:
    return LedgerCatalog(store, Random(0), SETTINGS)


def test_ledgers_lie_where_bookkeeper_puts_them() -> None:
    assert ledger_path(1) == "/ledgers/00/0000/L0001"
    assert ledger_path(1234567890) == "/ledgers/12/3456/L7890"
    assert ledger_path(2**31 - 2) == "/ledgers/21/4748/L3646"
    assert ledger_path(2**31 - 1) == "/ledgers/000/0000/0021/4748/L3647"
    assert repair_path(0x1_0002_0003) == "/ledgers/underreplication/ledgers/0000/0001/0002/0003/urL4295098371"


@given(st.integers(0, 2**62))
def test_a_path_names_its_ledger(ledger_id: int) -> None:
    assert ledger_id_at(ledger_path(ledger_id)) == ledger_id
    assert repaired_ledger_at(repair_path(ledger_id)) == ledger_id


@pytest.mark.parametrize(
    "path", ["/ledgers/LAYOUT", "/ledgers/available/b1", "/ledgers/00/0000/X0001", "/ledgers/a/b/L1"]
)
def test_other_records_are_not_ledgers(path: str) -> None:
    assert ledger_id_at(path) is None


def test_records_survive_the_store() -> None:
    async def scenario() -> None:
        ledgers = catalog(FaultyStore(MemoryTree().open_session()))
        known = await ledgers.create(new_record)
        assert await ledgers.load(known.record.ledger_id) == known
        changed = known.record.with_ensemble(5, ("b2:3181", "b3:3181"))
        known = await ledgers.replace(known, changed)
        assert (await ledgers.load(known.record.ledger_id)).record == changed
        known = await ledgers.replace(known, changed.in_recovery())
        closed = changed.in_recovery().closed(4, 99)
        known = await ledgers.replace(known, closed)
        assert await ledgers.load(known.record.ledger_id) == known
        assert known.record.segments == new_record(0).segments
        assert (known.record.last_entry, known.record.length) == (4, 99)

    asyncio.run(scenario())


def test_a_stale_version_is_refused() -> None:
    async def scenario() -> None:
        ledgers = catalog(FaultyStore(MemoryTree().open_session()))
        first = await ledgers.create(new_record)
        await ledgers.replace(first, first.record.in_recovery())
        with pytest.raises(BadVersion):
            await ledgers.replace(first, first.record.closed(3, 30))

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["refused", "lost", "unanswered"])
@pytest.mark.parametrize("operation", ["put", "get", "children", "delete"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_one_failed_call_changes_nothing_for_the_caller(operation: str, fault: str, nth: int) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        store = FaultyStore(tree.open_session(), FaultOnce(operation, "/ledgers", fault, nth))
        ledgers = catalog(store)
        known = await ledgers.create(new_record)
        known = await ledgers.replace(known, known.record.in_recovery())
        known = await ledgers.replace(known, known.record.closed(7, 70))
        assert known.version == 2
        fresh = catalog(FaultyStore(tree.open_session()))
        assert await fresh.load(known.record.ledger_id) == known
        await ledgers.delete(known.record.ledger_id)
        assert not await fresh.exists(known.record.ledger_id)

    asyncio.run(scenario())


def test_an_unanswered_put_that_another_overwrote_is_refused() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        store = FaultyStore(tree.open_session())
        ours, theirs = catalog(store), catalog(FaultyStore(tree.open_session()))
        known = await ours.create(new_record)
        other = await theirs.load(known.record.ledger_id)

        def fault(operation: str, path: str) -> str | None:
            return "lost" if operation == "put" else None

        store.fault = fault
        await theirs.replace(other, other.record.in_recovery())
        with pytest.raises(BadVersion):
            await ours.replace(known, known.record.closed(1, 1))

    asyncio.run(scenario())


def test_a_store_that_stays_away_is_an_error() -> None:
    async def scenario() -> None:
        store = FaultyStore(MemoryTree().open_session(), lambda operation, path: "refused")
        with pytest.raises(MetadataError):
            await catalog(store).create(new_record)
        with pytest.raises(MetadataError):
            await catalog(store).load(1)
        with pytest.raises(MetadataError):
            await catalog(store).delete(1)

    asyncio.run(scenario())


def test_ids_go_on_in_the_long_tree() -> None:
    async def scenario() -> None:
        store = FaultyStore(MemoryTree().open_session())
        await store.put(f"{LONG_ID_GENERATOR}/HOB-0000000003", b"")
        ledgers = catalog(store)
        first, second = await ledgers.create(new_record), await ledgers.create(new_record)
        assert first.record.ledger_id >> 32 == 3
        assert second.record.ledger_id == first.record.ledger_id + 1
        assert [i async for i in ledgers.ledger_ids()] == [first.record.ledger_id, second.record.ledger_id]

    asyncio.run(scenario())


def test_an_id_that_is_taken_is_skipped() -> None:
    async def scenario() -> None:
        store = FaultyStore(MemoryTree().open_session())
        ledgers = catalog(store)
        first = (await ledgers.create(new_record)).record.ledger_id
        await store.put(ledger_path(first + 1), b"somebody's")
        assert (await ledgers.create(new_record)).record.ledger_id == first + 2

    asyncio.run(scenario())


def test_the_tree_is_prepared_once_and_never_overwritten() -> None:
    async def scenario() -> None:
        store = FaultyStore(MemoryTree().open_session())
        await store.put(LAYOUT, b"theirs")
        await catalog(store).prepare()
        await catalog(store).prepare()
        record = await store.get(LAYOUT)
        assert record is not None
        assert record.value == b"theirs"
        assert await store.exists("/ledgers/available/readonly")
        with pytest.raises(NoSuchLedger):
            await catalog(store).load(5)

    asyncio.run(scenario())
