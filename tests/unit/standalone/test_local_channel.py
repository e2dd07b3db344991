# SPDX-License-Identifier: Apache-2.0
"""A bookie in the same process: what comes in one turn goes down together, and each is answered for itself."""

import pytest

from magnetar.bookie.storage import BookieStorage
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.standalone.local_channel import LocalBookieChannel
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.unit.bookie.benches import KEY, OK, ROOMY, Answers, add_all, bench, packed, run

LEDGERS = range(1, 40)


async def make_ledgers(storage: BookieStorage) -> None:
    """A ledger's first add is looked at with care; those behind it are plain ones."""
    for ledger_id in LEDGERS:
        await add_all(storage, ledger_id, range(1))


@pytest.mark.parametrize("count", [1, 2, 10])
def test_adds_of_many_ledgers_in_one_turn_are_one_group_and_answered_by_ledger(count: int) -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), ROOMY) as storage:
            await make_ledgers(storage)
            channel, syncs = LocalBookieChannel(storage), storage.stats().journal_syncs
            answers = {ledger_id: Answers() for ledger_id in LEDGERS}
            for entry_id in range(1, count + 1):
                for ledger_id in LEDGERS:
                    entry = packed(ledger_id, entry_id, b"%d of %d" % (entry_id, ledger_id))
                    channel.add(ledger_id, entry_id, entry, KEY, answers[ledger_id])
            for ledger_id, told in answers.items():
                await told.until(count)
                assert told.codes == dict.fromkeys(range(1, count + 1), OK)
                assert [first for first, _, _ in told.calls] == sorted(first for first, _, _ in told.calls)
                stored = await channel.read_batch(ledger_id, 1, count, 1 << 20)
                assert stored == [packed(ledger_id, n, b"%d of %d" % (n, ledger_id)) for n in range(1, count + 1)]
            assert storage.stats().journal_syncs == syncs + 1

    run(scenario())


def test_new_ledgers_are_begun_by_the_adds_of_one_turn() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), ROOMY) as storage:
            channel = LocalBookieChannel(storage)
            answers = {ledger_id: Answers() for ledger_id in LEDGERS}
            for entry_id in range(3):
                for ledger_id, told in answers.items():
                    channel.add(ledger_id, entry_id, packed(ledger_id, entry_id), KEY, told)
            for told in answers.values():
                await told.until(3)
                assert told.codes == {0: OK, 1: OK, 2: OK}

    run(scenario())


def test_what_one_ledger_is_refused_does_not_concern_the_others() -> None:
    """Fenced, another's key, an id that is not the entry's, a stranger's listener: each among plain adds."""

    async def scenario() -> None:
        async with bench(SimulatedDisk(), ROOMY) as storage:
            await make_ledgers(storage)
            await storage.fence(5, KEY)
            channel = LocalBookieChannel(storage)
            plain, fenced, stranger, liar, rescuer, second = (Answers() for _ in range(6))
            channel.add(1, 1, packed(1, 1), KEY, plain)
            channel.add(5, 1, packed(5, 1), KEY, fenced)
            channel.add(2, 1, packed(2, 1), b"x" * 20, stranger)
            channel.add(1, 2, packed(1, 2), KEY, plain)
            channel.add(3, 7, packed(3, 8), KEY, liar)
            channel.add(5, 2, packed(5, 2), KEY, rescuer, recovery=True)
            channel.add(1, 3, packed(1, 3), KEY, second)
            channel.add_run(1, 4, [packed(1, 4), packed(1, 5)], KEY, plain)
            for told, count in ((plain, 4), (fenced, 1), (stranger, 1), (liar, 1), (rescuer, 1), (second, 1)):
                await told.until(count)
            assert plain.codes == {1: OK, 2: OK, 4: OK, 5: OK}
            assert second.codes == {3: OK}
            assert fenced.codes == {1: ReturnCode.FENCED}
            assert stranger.codes == {1: ReturnCode.UNAUTHORIZED}
            assert liar.codes == {7: ReturnCode.BAD_REQUEST}
            assert rescuer.codes == {2: OK}

    run(scenario())


def test_more_than_a_batch_in_one_turn_is_several() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), ROOMY) as storage:
            await make_ledgers(storage)
            channel, told = LocalBookieChannel(storage), Answers()
            for entry_id in range(1, 1_001):
                # Every tenth is too large to wait for others.
                body = bytes(20_000) if entry_id % 10 == 0 else b"body"
                channel.add(1, entry_id, packed(1, entry_id, body), KEY, told)
            await told.until(1_000)
            assert set(told.codes.values()) == {OK}
            assert len(told.codes) == 1_000

    run(scenario())
