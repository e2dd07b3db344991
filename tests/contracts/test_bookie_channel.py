# SPDX-License-Identifier: Apache-2.0
"""What every BookieChannel promises, whatever lies behind it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
import uvloop

from magnetar.errors import MagnetarError, NoSuchEntry, NoSuchLedger, WrongMasterKey
from magnetar.ledger.channel import BookieChannel
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker
from tests.contracts.bookie_channels import CHANNELS, OpenChannel

LEDGER = 7
PACKER = EntryPacker(LEDGER, DigestType.CRC32C, b"secret")
KEY = PACKER.master_key
Scenario = Callable[[BookieChannel], Awaitable[None]]


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Opened(NamedTuple):
    """A way to open a channel, and the loop to do it on."""

    channel: OpenChannel
    loop_factory: Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[(name, loop) for name in sorted(CHANNELS) for loop in sorted(LOOPS)], ids="-".join)
def opened(request: pytest.FixtureRequest) -> Opened:
    name, loop = request.param
    return Opened(CHANNELS[name], LOOPS[loop])


def run(opened: Opened, scenario: Scenario) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), opened.channel() as channel:
            await scenario(channel)

    with asyncio.Runner(loop_factory=opened.loop_factory) as runner:
        runner.run(main())


class Outcomes:
    """Keeps what is told of adds; each entry is told once for each time that it was sent."""

    def __init__(self) -> None:
        self.codes: dict[int, list[int]] = {}
        self.calls = 0
        self._told = asyncio.Event()

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        assert first <= last
        self.calls += 1
        for entry_id in range(first, last + 1):
            self.codes.setdefault(entry_id, []).append(code)
        self._told.set()

    async def until(self, count: int) -> None:
        while sum(map(len, self.codes.values())) < count:
            self._told.clear()
            await self._told.wait()


def entry(entry_id: int, body: bytes = b"", confirmed: int | None = None) -> bytes:
    confirmed = entry_id - 1 if confirmed is None else confirmed
    return PACKER.pack(entry_id, confirmed, 100, [body or b"entry %d" % entry_id])


async def add(
    channel: BookieChannel, *entry_ids: int, key: bytes = KEY, recovery: bool = False
) -> dict[int, list[int]]:
    outcomes = Outcomes()
    for entry_id in entry_ids:
        channel.add(LEDGER, entry_id, entry(entry_id), key, outcomes, recovery)
    await outcomes.until(len(entry_ids))
    return outcomes.codes


def test_what_was_added_is_read_byte_for_byte(opened: Opened) -> None:
    async def scenario(channel: BookieChannel) -> None:
        assert channel.bookie == "b1"
        assert await add(channel, *range(20)) == {i: [0] for i in range(20)}
        for i in (0, 7, 19):
            assert bytes(await channel.read(LEDGER, i)) == entry(i)

    run(opened, scenario)


def test_outcomes_are_told_later_and_once(opened: Opened) -> None:
    async def scenario(channel: BookieChannel) -> None:
        outcomes = Outcomes()
        for i in range(500):
            channel.add(LEDGER, i, entry(i), KEY, outcomes)
        assert not outcomes.codes
        await outcomes.until(500)
        assert outcomes.codes == {i: [0] for i in range(500)}

    run(opened, scenario)


def test_the_same_entry_twice_is_told_twice(opened: Opened) -> None:
    async def scenario(channel: BookieChannel) -> None:
        assert await add(channel, 3, 3, 4, 3) == {3: [0, 0, 0], 4: [0]}
        assert await channel.entry_ids(LEDGER) == [3, 4]

    run(opened, scenario)


def test_absence_is_proven_by_name(opened: Opened) -> None:
    async def scenario(channel: BookieChannel) -> None:
        with pytest.raises(NoSuchLedger):
            await channel.read(LEDGER, 0)
        await add(channel, 0, 2)
        with pytest.raises(NoSuchEntry):
            await channel.read(LEDGER, 1)
        with pytest.raises(NoSuchEntry):
            await channel.read_batch(LEDGER, 1, 5, 10_000)
        with pytest.raises(NoSuchLedger):
            await channel.entry_ids(LEDGER + 1)

    run(opened, scenario)


def test_a_batch_is_a_run_within_its_bounds(opened: Opened) -> None:
    async def scenario(channel: BookieChannel) -> None:
        await add(channel, *range(10), 12)
        size = len(entry(0))
        for first, count_max, bytes_max, most in (
            (0, 4, 10_000, 4),
            (0, 100, 3 * size, 3),
            (5, 100, 10_000, 5),
            (0, 10, 1, 1),
            (12, 5, 10_000, 1),
        ):
            found = [bytes(one) for one in await channel.read_batch(LEDGER, first, count_max, bytes_max)]
            assert 1 <= len(found) <= most
            assert found == [entry(first + i) for i in range(len(found))]

    run(opened, scenario)


def test_what_is_at_hand_is_the_front_of_the_batch_or_nothing(opened: Opened) -> None:
    async def scenario(channel: BookieChannel) -> None:
        await add(channel, *range(10), 12)
        size = len(entry(0))
        for first, count_max, bytes_max, most in ((0, 4, 10_000, 4), (0, 100, 3 * size, 3), (5, 100, 10_000, 5)):
            batch = [bytes(one) for one in await channel.read_batch(LEDGER, first, count_max, bytes_max)]
            found = [bytes(one) for one in channel.at_hand(LEDGER, first, count_max, bytes_max)]
            assert len(found) <= most
            assert found == batch[: len(found)]
        assert channel.at_hand(LEDGER, 10, 5, 10_000) == []
        assert channel.at_hand(LEDGER + 1, 0, 5, 10_000) == []

    run(opened, scenario)


@pytest.mark.parametrize("by", ["read", "last_confirmed"])
def test_a_fenced_ledger_takes_recovery_adds_only(opened: Opened, by: str) -> None:
    async def scenario(channel: BookieChannel) -> None:
        await add(channel, 0)
        if by == "read":
            assert bytes(await channel.read(LEDGER, 0, fence_key=KEY)) == entry(0)
        else:
            assert (await channel.last_confirmed(LEDGER, fence_key=KEY)).last_entry == entry(0)
        assert await add(channel, 1) == {1: [ReturnCode.FENCED]}
        assert await add(channel, 2, recovery=True) == {2: [0]}
        assert await channel.entry_ids(LEDGER) == [0, 2]

    run(opened, scenario)


@pytest.mark.parametrize("by", ["read", "last_confirmed"])
def test_a_ledger_that_the_bookie_does_not_know_is_fenced_too(opened: Opened, by: str) -> None:
    async def scenario(channel: BookieChannel) -> None:
        try:
            if by == "read":
                await channel.read(LEDGER, 0, fence_key=KEY)
            else:
                assert (await channel.last_confirmed(LEDGER, fence_key=KEY)).last_entry is None
        except (NoSuchLedger, NoSuchEntry):
            pass
        assert await add(channel, 0) == {0: [ReturnCode.FENCED]}

    run(opened, scenario)


def test_another_key_is_refused(opened: Opened) -> None:
    async def scenario(channel: BookieChannel) -> None:
        await add(channel, 0)
        assert await add(channel, 1, key=b"x" * 20) == {1: [ReturnCode.UNAUTHORIZED]}
        with pytest.raises(WrongMasterKey):
            await channel.read(LEDGER, 0, fence_key=b"x" * 20)
        assert await add(channel, 1) == {1: [0]}

    run(opened, scenario)


def test_the_last_confirmed_is_in_the_last_entry(opened: Opened) -> None:
    async def scenario(channel: BookieChannel) -> None:
        await add(channel, 0, 1, 2)
        found = await channel.last_confirmed(LEDGER)
        assert found.last_entry == entry(2)
        assert found.last_add_confirmed == 1

    run(opened, scenario)


@pytest.mark.feature("B-35")
def test_an_explicit_last_confirmed_counts(opened: Opened) -> None:
    async def scenario(channel: BookieChannel) -> None:
        await add(channel, 0, 1, 2)
        await channel.write_last_confirmed(LEDGER, 2, PACKER.pack_last_confirmed(2), KEY)
        assert (await channel.last_confirmed(LEDGER)).last_add_confirmed == 2

    run(opened, scenario)


def test_many_requests_of_all_kinds_do_not_mix_up_answers(opened: Opened) -> None:
    async def scenario(channel: BookieChannel) -> None:
        await add(channel, *range(50))

        async def check(i: int) -> None:
            assert bytes(await channel.read(LEDGER, i)) == entry(i)
            assert bytes((await channel.read_batch(LEDGER, i, 3, 10_000))[0]) == entry(i)
            with pytest.raises(MagnetarError):
                await channel.read(LEDGER, 100 + i)

        await asyncio.gather(*(check(i % 50) for i in range(200)), channel.entry_ids(LEDGER))

    run(opened, scenario)
