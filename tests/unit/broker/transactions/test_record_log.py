# SPDX-License-Identifier: Apache-2.0
"""A log of records: nobody is told that a record is durable before it is."""

import asyncio
from typing import Any

import pytest

from magnetar.broker.transactions.record_log import RecordLog
from magnetar.errors import LedgerFenced, ServiceNotReady
from magnetar.ids import Position
from tests.unit.broker.transactions.world import TransactionWorld


class LedgerTwin:
    def __init__(self) -> None:
        self.appended: list[bytes] = []

    def append(self, parts: tuple[bytes, ...]) -> None:
        self.appended.append(b"".join(parts))


def log_over(ledger: Any) -> RecordLog:
    log = RecordLog("log")
    log.ledger = ledger
    return log


def test_synced_waits_for_what_was_appended_before_it_and_no_more() -> None:
    async def test() -> None:
        log = log_over(LedgerTwin())
        places: list[Position] = []
        log.append(b"1", places.append)
        log.append(b"2")
        first = asyncio.create_task(log.synced())
        await asyncio.sleep(0)
        log.append(b"3", places.append)
        second = asyncio.create_task(log.synced())
        await asyncio.sleep(0)
        log.on_persisted(5, 0, 0)
        await asyncio.sleep(0)
        assert not first.done()
        log.on_persisted(5, 1, 1)
        await first
        assert not second.done()
        log.on_persisted(6, 0, 0)
        await second
        assert places == [Position(5, 0), Position(6, 0)]
        await log.synced()

    asyncio.run(test())


def test_a_failure_is_told_to_all_who_wait_and_ends_the_log() -> None:
    async def test() -> None:
        log = log_over(LedgerTwin())
        failures: list[object] = []
        log.on_failed = failures.append
        log.append(b"1")
        waiting = asyncio.create_task(log.synced())
        await asyncio.sleep(0)
        log.on_append_failed(1, LedgerFenced("another owner"))
        with pytest.raises(ServiceNotReady):
            await waiting
        with pytest.raises(ServiceNotReady):
            log.append(b"2")
        with pytest.raises(ServiceNotReady):
            await log.synced()
        assert len(failures) == 1

    asyncio.run(test())


def test_records_come_back_in_order_without_those_let_go() -> None:
    async def test() -> None:
        world = TransactionWorld(ledger_entries_max=3)
        topics = await world.start()
        name = "public/default/persistent/records"
        log = await RecordLog.open(topics.managed_ledgers, name, "c")
        places: list[Position] = []
        for number in range(10):
            log.append(str(number).encode(), places.append)
            await log.synced()
        log.forget_before(places[4], {"n": 4})
        await log.close()
        log = await RecordLog.open(topics.managed_ledgers, name, "c")
        assert [data async for _, data in log.records()] == [str(number).encode() for number in range(4, 10)]
        assert log.cursor.properties == {"n": 4}
        await log.close()
        await world.topics.close()

    asyncio.run(test())
