# SPDX-License-Identifier: Apache-2.0
"""Aborted transactions in segments: the snapshot stays small, every owner knows all of them, and no ledger is left."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from magnetar.broker.topic import Topic
from magnetar.broker.transactions.segment_format import decode_segment, encode_segment
from magnetar.broker.transactions.topic_transactions import CURSOR
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import DamagedRecord, MagnetarError
from magnetar.ids import Position
from magnetar.managed_ledger.side_ledgers import SideLedgers
from tests.unit.broker.transactions.world import TARGETS, TransactionWorld, visible

TARGET = TARGETS[0]
# The example of docs/formats/transactions.md.
SEGMENT = bytes.fromhex("4d5458530001000000000001" + "0000000000000003" + "0000000000000007" + "0000000000000005")
SEGMENT += bytes.fromhex("0000000000000002")


@pytest.mark.feature("B-18")
def test_a_segment_has_the_bytes_that_the_format_names() -> None:
    assert encode_segment([(TxnId(3, 7), Position(5, 2))]) == SEGMENT
    assert decode_segment(SEGMENT) == [(TxnId(3, 7), Position(5, 2))]
    for damaged in (b"", SEGMENT[:-1], b"X" + SEGMENT[1:], SEGMENT[:5] + b"\x02" + SEGMENT[6:], SEGMENT + b"\x00"):
        with pytest.raises(DamagedRecord):
            decode_segment(damaged)


async def abort(world: TransactionWorld, numbers: range) -> None:
    for number in numbers:
        coordinator, txn_id = await world.begin()
        await world.send(TARGET, txn_id, number)
        await coordinator.end(txn_id, commit=False)


def kinds(topic: Topic) -> Counter[str]:
    """What the snapshot names, by kind."""
    return Counter(name.partition(":")[0] for name in topic.managed_ledger.cursors[CURSOR].properties)


async def sealed(topic: Topic) -> None:
    """Whatever is to be sealed or deleted is, and the snapshot says so."""
    async with asyncio.timeout(20):
        while True:
            topic.transactions._save()
            topic.transactions.upkeep()
            segments = topic.transactions._segments
            is_done = segments is not None and not segments._is_working and not segments._trimmed()
            if is_done and not kinds(topic)["unused"] and topic.transactions.buffer.unsealed < 4:
                return
            await asyncio.sleep(0.001)


async def start_again(world: TransactionWorld, **changes: Any) -> Topic:
    await world.die()
    world.settings = replace(world.settings, **changes)
    await world.open()
    return await world.topic(TARGET)


async def segments_stored(world: TransactionWorld) -> list[int]:
    """Ledgers of segments that exist, known to anyone or not."""
    assert world._owner is not None
    catalog = world._owner.client.ledgers.catalog
    return [
        ledger_id
        async for ledger_id in catalog.ledger_ids()
        if ((await catalog.load(ledger_id)).record.custom or {}).get("component") == b"transaction-snapshot-segment"
    ]


SEGMENTED = {"transaction_snapshot_segmented": True, "transaction_snapshot_segment_bytes": 4 * 32}


@pytest.mark.feature("B-18")
def test_aborted_transactions_leave_the_snapshot_and_are_known_to_the_next_owner() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        await start_again(world, **SEGMENTED)
        await abort(world, range(10))
        await world.send_plain(TARGET, 100)
        topic = await world.topic(TARGET)
        await sealed(topic)
        aborted = dict(topic.transactions.buffer.aborted)
        assert len(aborted) == 10
        assert kinds(topic) == {"segment": 2, "aborted": 2}

        topic = await start_again(world)
        assert list(topic.transactions.buffer.aborted.items()) == list(aborted.items())
        assert topic.transactions.buffer.sealed == 8
        assert await visible(topic) == [100]

        # Switched off, what is there is kept and nothing more is sealed.
        topic = await start_again(world, transaction_snapshot_segmented=False)
        await abort(world, range(10, 20))
        topic.transactions.upkeep()
        assert await visible(topic) == [100]
        assert kinds(topic)["segment"] == 2
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("B-18")
def test_segments_go_with_the_entries_and_with_the_topic() -> None:
    async def test() -> None:
        world = TransactionWorld(ledger_entries_max=4, retention_ms=0, retention_bytes=0)
        await world.open()
        topic = await start_again(world, **SEGMENTED)
        reader = (await world.subscription(TARGET)).cursor
        await abort(world, range(8))
        await sealed(topic)
        assert len(await segments_stored(world)) == 2
        for number in range(8):
            await world.send_plain(TARGET, 100 + number)
        topic.transactions._save()
        await topic.managed_ledger.cursors[CURSOR].flush()
        reader.ack_cumulative(topic.managed_ledger.last_confirmed)
        await reader.flush()
        await topic.managed_ledger.trim()
        await sealed(topic)
        assert not topic.transactions.buffer.aborted
        assert await segments_stored(world) == []

        await abort(world, range(10, 18))
        await sealed(topic)
        assert len(await segments_stored(world)) == 2
        await world.topics.delete(TARGET, force=True)
        assert await segments_stored(world) == []
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("B-18")
@pytest.mark.parametrize("steps", [*range(0, 60, 4), 80, 120])
def test_an_owner_that_dies_while_it_seals_loses_nothing_and_leaves_no_ledger(steps: int) -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        await abort(world, range(9))
        await world.send_plain(TARGET, 100)
        topic = await start_again(world, **SEGMENTED)
        topic.transactions._look_after_segments()
        for _ in range(steps):
            await asyncio.sleep(0)

        topic = await start_again(world)
        assert len(topic.transactions.buffer.aborted) == 9
        assert await visible(topic) == [100]
        await sealed(topic)
        assert kinds(topic) == {"segment": 2, "aborted": 1}
        assert len(await segments_stored(world)) == 2
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("B-18")
def test_a_topic_whose_segment_cannot_be_read_is_not_served() -> None:
    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        topic = await start_again(world, **SEGMENTED)
        await abort(world, range(4))
        await sealed(topic)
        [ledger_id] = await segments_stored(world)
        await topic.managed_ledger.side_ledgers.delete(ledger_id)
        with pytest.raises(MagnetarError):
            await start_again(world)
        await world.stop()

    asyncio.run(test())


@pytest.mark.feature("B-18")
@pytest.mark.parametrize("is_written", [False, True])
def test_a_snapshot_taken_while_a_segment_is_written_names_only_what_is_there(
    is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F161: more are aborted than a segment holds, and the owner dies before or behind its write, after a snapshot."""

    async def test() -> None:
        world = TransactionWorld()
        await world.open()
        await abort(world, range(9))
        await world.send_plain(TARGET, 100)
        topic = await start_again(world, **SEGMENTED)
        dying, write, reached = topic.transactions, SideLedgers.write, asyncio.Event()

        async def stopped_write(self: SideLedgers, *given: Any) -> None:
            if is_written:
                await write(self, *given)
            await dying._save_now()
            reached.set()
            await asyncio.get_running_loop().create_future()

        with monkeypatch.context() as patch:
            patch.setattr(SideLedgers, "write", stopped_write)
            dying._look_after_segments()
            await reached.wait()
            # Whoever publishes does not wait for it.
            await world.send_plain(TARGET, 101)
            await abort(world, range(10, 11))
        topic = await start_again(world)
        assert len(topic.transactions.buffer.aborted) == 10
        assert await visible(topic) == [100, 101]
        await sealed(topic)
        assert kinds(topic) == {"segment": 2, "aborted": 2}
        assert len(await segments_stored(world)) == 2
        await world.stop()

    asyncio.run(test())
