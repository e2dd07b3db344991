# SPDX-License-Identifier: Apache-2.0
"""Very many transactions: what has ended stays ended whoever owns the log, and a hundred ends at once all come."""

import asyncio
from collections import Counter
from random import Random

import pytest

from magnetar.broker.transactions.coordinator_state import Status
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import ServiceNotReady, TransactionNotFound
from tests.unit.broker.transactions.world import TARGETS, TransactionWorld, visible

FINISHED = 1_000
ENDED = {True: Status.COMMITTED, False: Status.ABORTED}
ENDING = {True: Status.COMMITTING, False: Status.ABORTING}


@pytest.mark.feature("F-TXN-08", "F-TXN-10")
def test_what_has_ended_never_comes_back_while_its_log_is_trimmed() -> None:
    """F157: owners die or leave in any order, ledgers of the log are deleted, and an id is given out once."""

    async def test() -> None:
        chance = Random(7)
        world = TransactionWorld(ledger_entries_max=40, retention_ms=0, retention_bytes=0)
        await world.open()
        told: dict[TxnId, bool] = {}
        first = [await first_ledger(world, number) for number in range(2)]
        while len(told) < FINISHED:
            for _ in range(chance.randrange(20, 80)):
                commit = chance.random() < 0.5
                coordinator, txn_id = await world.begin(coordinator=chance.randrange(2))
                assert txn_id not in told, "given out twice"
                await coordinator.end(txn_id, commit=commit)
                told[txn_id] = commit
            for number in range(2):
                await (await world.transactions.coordinator(number)).log.ledger.trim()
            await (world.die() if chance.random() < 0.7 else world.stop())
            await world.open()
            await check_ended(world, told)
        for number in range(2):
            assert await first_ledger(world, number) > first[number], "nothing of the log was ever trimmed"
        await world.stop()

    asyncio.run(test())


async def first_ledger(world: TransactionWorld, coordinator: int) -> int:
    return (await world.transactions.coordinator(coordinator)).log.ledger.first_position.ledger_id


async def check_ended(world: TransactionWorld, told: dict[TxnId, bool]) -> None:
    known = 0
    for txn_id, commit in told.items():
        coordinator = await world.transactions.of(txn_id)
        assert coordinator.state.last_id >= txn_id.least
        try:
            status = coordinator.state.find(txn_id).status
        except TransactionNotFound:
            continue
        known += 1
        # Its last record may not have been durable; its decision was.
        assert status in (ENDED[commit], ENDING[commit]), f"{txn_id} was told {commit} and is {status.name}"
    assert known >= min(len(told), world.settings.transactions_ended_max)


@pytest.mark.feature("F-TXN-10")
def test_a_hundred_ends_at_once_all_come_though_nobody_finds_the_topic_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F165: each is tried until it is done; none is forgotten, and what was committed is seen once."""

    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        begun = [await world.begin(coordinator=number % 2) for number in range(100)]
        for number, (_, txn_id) in enumerate(begun):
            await world.send(TARGETS[0], txn_id, number)
        failures: Counter[TxnId] = Counter()
        plain_end = world.transactions.end_here

        async def end_here(topic: str, txn_id: TxnId, *, commit: bool, subscription: str | None = None) -> None:
            if failures[txn_id] < txn_id.least % 4:
                failures[txn_id] += 1
                raise ServiceNotReady("the look-up failed")
            await plain_end(topic, txn_id, commit=commit, subscription=subscription)

        monkeypatch.setattr(world.transactions, "end_here", end_here)
        await asyncio.gather(*(coordinator.end(txn, commit=txn.least % 3 > 0) for coordinator, txn in begun))
        async with asyncio.timeout(30):
            while any(coordinator.state.active for coordinator, _ in begun):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        committed = [number for number, (_, txn) in enumerate(begun) if txn.least % 3 > 0]
        assert sorted(await visible(await world.topic(TARGETS[0]))) == committed
        assert len(failures) > 50
        await world.stop()

    asyncio.run(test())
