# SPDX-License-Identifier: Apache-2.0
"""The TCP channel when the network or the bookie misbehaves: cuts, silence, garbage, bounds, coming back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from magnetar.config.ledger import ChannelSettings
from magnetar.errors import BookieUnavailable, TooManyRequests
from magnetar.ledger.bookies import Address
from magnetar.ledger.channel import NO_ANSWER
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.placement import RandomPlacement
from magnetar.ledger.tcp_channel import TcpChannel, TcpChannels
from magnetar.metadata.memory import MemoryTree
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.digest import DigestType
from tests.contracts.test_bookie_channel import KEY, LEDGER, Outcomes, add, entry
from tests.simulation.world.model_bookie import ModelBookie
from tests.simulation.world.model_server import ModelServer
from tests.unit.ledger.cluster import PASSWORD, QUICK, Confirmations, bodies


@asynccontextmanager
async def served(settings: ChannelSettings) -> AsyncIterator[tuple[TcpChannel, ModelServer]]:
    server = ModelServer(ModelBookie("b1"))
    await server.start()
    crashes: list[BaseException] = []
    tasks = Tasks("test", lambda name, error: crashes.append(error))

    async def address(bookie: str) -> Address:
        return Address("127.0.0.1", server.port)

    channel = TcpChannel("b1", address, tasks, settings)
    try:
        async with asyncio.timeout(30):
            yield channel, server
    finally:
        channel.close()
        await tasks.close()
        await server.stop()
    assert not crashes


def test_one_connection_carries_all_entries_and_answers_come_in_runs() -> None:
    async def scenario() -> None:
        async with served(ChannelSettings()) as (channel, server):
            outcomes = Outcomes()
            for i in range(2_000):
                channel.add(LEDGER, i, entry(i), KEY, outcomes)
            await outcomes.until(2_000)
            assert server.accepted == 1
            assert outcomes.calls < 1_000

    asyncio.run(scenario())


def test_a_cut_fails_what_is_outstanding_and_the_next_request_connects_again() -> None:
    async def scenario() -> None:
        async with served(ChannelSettings(reconnect_delay_ms=1)) as (channel, server):
            await add(channel, 0)
            server.bookie.stall()
            outcomes = Outcomes()
            for i in range(1, 10):
                channel.add(LEDGER, i, entry(i), KEY, outcomes)
            channel.add(LEDGER, 5, entry(5), KEY, outcomes)
            read = asyncio.ensure_future(channel.read(LEDGER, 0))
            listing = asyncio.ensure_future(channel.entry_ids(LEDGER))
            await server.until_connected(2)
            server.cut()
            await outcomes.until(10)
            assert outcomes.codes == {i: [NO_ANSWER] * (2 if i == 5 else 1) for i in range(1, 10)}
            for question in (read, listing):
                with pytest.raises(BookieUnavailable):
                    await question
            server.bookie.resume()
            while True:
                codes = await add(channel, 20)
                if codes[20] == [0]:
                    break
                await asyncio.sleep(0.001)
            assert server.accepted >= 3

    asyncio.run(scenario())


def test_a_bookie_that_is_not_there_is_told_and_not_hammered() -> None:
    async def scenario() -> None:
        async with served(ChannelSettings(reconnect_delay_ms=60_000, reconnect_delay_max_ms=60_000)) as (
            channel,
            server,
        ):
            port = server.port
            await server.stop()
            assert await add(channel, 0) == {0: [NO_ANSWER]}
            with pytest.raises(BookieUnavailable):
                await channel.read(LEDGER, 0)
            # It is back, but the pause is not over: still no, and no connection was tried.
            await server.start(port)
            assert await add(channel, 1) == {1: [NO_ANSWER]}
            assert server.accepted == 0

    asyncio.run(scenario())


def test_silence_ends_at_the_deadline() -> None:
    async def scenario() -> None:
        async with served(ChannelSettings(request_timeout_ms=50)) as (channel, server):
            await add(channel, 0)
            server.bookie.stall()
            reading = asyncio.gather(
                channel.read(LEDGER, 0),
                channel.read_batch(LEDGER, 0, 2, 1_000),
                channel.entry_ids(LEDGER),
                return_exceptions=True,
            )
            assert await add(channel, 1, 2, 3) == {i: [NO_ANSWER] for i in (1, 2, 3)}
            assert all(isinstance(outcome, BookieUnavailable) for outcome in await reading)
            accepted = server.accepted
            server.bookie.resume()
            # Late answers to what was given up are nobody's; a connection that nothing came back on is given up too.
            while True:
                if (await add(channel, 4))[4] == [0]:
                    break
            assert server.accepted > accepted

    asyncio.run(scenario())


@pytest.mark.feature("F-BP-01", "F-BP-02")
def test_writers_that_are_ahead_of_a_bookie_wait_for_it_in_order() -> None:
    """Ten may be on their way, ten more wait their turn, and only those beyond are refused: no bookie failed."""

    async def scenario(settings: ChannelSettings) -> None:
        async with served(settings) as (channel, server):
            server.bookie.stall()
            outcomes = Outcomes()
            for i in range(30):
                channel.add(LEDGER, i, entry(i), KEY, outcomes)
            assert not outcomes.codes
            await outcomes.until(10)
            assert outcomes.codes == {i: [int(ReturnCode.TOO_MANY_REQUESTS)] for i in range(20, 30)}
            server.bookie.resume()
            await outcomes.until(30)
            assert [outcomes.codes[i] for i in range(20)] == [[0]] * 20
            assert list(server.bookie.ledgers[LEDGER].entries) == list(range(20)), "in the order they came"
            assert await add(channel, 50) == {50: [0]}

    ten = sum(len(entry(i)) for i in range(10))
    next_ten = sum(len(entry(i)) for i in range(10, 20))
    asyncio.run(scenario(ChannelSettings(outstanding_requests_max=10, held_bytes_max=next_ten)))
    asyncio.run(scenario(ChannelSettings(outstanding_bytes_max=ten, held_bytes_max=next_ten)))


def test_adds_that_wait_for_their_turn_fail_with_a_cut() -> None:
    async def scenario() -> None:
        settings = ChannelSettings(outstanding_requests_max=3, reconnect_delay_ms=1)
        async with served(settings) as (channel, server):
            await add(channel, 0)
            server.bookie.stall()
            outcomes = Outcomes()
            for i in range(1, 9):
                channel.add(LEDGER, i, entry(i), KEY, outcomes)
            asking = asyncio.ensure_future(channel.entry_ids(LEDGER))
            await server.until_connected(2)
            server.cut()
            with pytest.raises(BookieUnavailable):
                await asking
            await outcomes.until(8)
            assert outcomes.codes == {i: [NO_ANSWER] for i in range(1, 9)}
            server.bookie.resume()
            # The pause before the next attempt may not be over.
            while True:
                if (await add(channel, 50))[50] == [0]:
                    break
                await asyncio.sleep(0.001)

    asyncio.run(scenario())


def test_questions_are_bounded_by_themselves() -> None:
    async def scenario() -> None:
        async with served(ChannelSettings(outstanding_requests_max=2)) as (channel, server):
            for i in range(2):
                await add(channel, i)
            server.bookie.stall()
            outcomes = Outcomes()
            for i in range(2, 6):
                channel.add(LEDGER, i, entry(i), KEY, outcomes)
            reads = [asyncio.ensure_future(channel.read(LEDGER, i)) for i in range(2)]
            for _ in range(3):
                await asyncio.sleep(0)
            with pytest.raises(TooManyRequests):
                await channel.entry_ids(LEDGER)
            server.bookie.resume()
            assert await asyncio.gather(*reads) == [entry(0), entry(1)]
            await outcomes.until(4)

    asyncio.run(scenario())


def test_garbage_from_the_bookie_ends_the_connection_not_the_client() -> None:
    async def scenario() -> None:
        async with served(ChannelSettings(reconnect_delay_ms=1)) as (channel, server):
            await add(channel, 0)
            (connection,) = server.connections
            assert connection.transport is not None
            # A packet that cannot be read, an answer to nothing, then a size that is impossible.
            connection.transport.write(b"\x00\x00\x00\x05\x02\x63\x00\x00\x00")
            connection.transport.write(b"\x00\x00\x00\x18\x02\x01\x00\x00" + bytes(20))
            await add(channel, 1)
            connection.transport.write(b"\xff\xff\xff\xff")
            outcomes = Outcomes()
            server.bookie.stall()
            channel.add(LEDGER, 2, entry(2), KEY, outcomes)
            await outcomes.until(1)
            assert outcomes.codes == {2: [NO_ANSWER]}

    asyncio.run(scenario())


def test_a_frame_above_the_bound_ends_the_connection_when_its_size_is_known() -> None:
    async def scenario() -> None:
        async with served(ChannelSettings(reconnect_delay_ms=1, frame_bytes_max=4_096)) as (channel, server):
            await add(channel, 0)
            (connection,) = server.connections
            assert connection.transport is not None
            server.bookie.stall()
            outcomes = Outcomes()
            channel.add(LEDGER, 1, entry(1), KEY, outcomes)
            # The size alone: what it announces never comes, and nobody waits for it.
            connection.transport.write((4_097).to_bytes(4, "big"))
            await outcomes.until(1)
            assert outcomes.codes == {1: [NO_ANSWER]}
            server.bookie.resume()
            codes = {2: [NO_ANSWER]}
            while codes[2] == [NO_ANSWER]:
                codes = await add(channel, 2)
            assert codes == {2: [0]}
            assert server.accepted == 2

    asyncio.run(scenario())


@pytest.mark.feature("F-BKC-27")
@pytest.mark.parametrize("use_v2_protocol", [True, False])
def test_a_ledger_over_sockets_survives_cuts_and_is_recovered(use_v2_protocol: bool) -> None:
    async def scenario() -> None:
        servers = {f"b{i}": ModelServer(ModelBookie(f"b{i}")) for i in range(1, 6)}
        for server in servers.values():
            await server.start()

        async def address(bookie: str) -> Address:
            return Address("127.0.0.1", servers[bookie].port)

        crashes: list[str] = []
        tasks = Tasks("test", lambda name, error: crashes.append(name))
        settings = ChannelSettings(use_v2_protocol=use_v2_protocol, reconnect_delay_ms=1)
        tree = MemoryTree()

        def client() -> tuple[Ledgers, TcpChannels]:
            channels = TcpChannels(address, tasks, settings)
            placement = RandomPlacement(lambda: list(servers), Random(1))
            return Ledgers(tree.open_session(), channels, placement, SystemClock(), Random(2), tasks, QUICK), channels

        (old, old_channels), (new, new_channels) = client(), client()
        listener = Confirmations()
        writer = await old.create(
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            digest=DigestType.CRC32C,
            password=PASSWORD,
            custom_metadata={},
            listener=listener,
        )
        for i in range(300):
            writer.append([b"%d" % i])
            if i == 150:
                await listener.until(lambda: listener.last > 50)
                servers[writer.known.record.last_segment.ensemble[0]].cut()
        await listener.until_confirmed(299)
        reader = await new.open(writer.ledger_id, password=PASSWORD)
        assert reader.last_entry == 299
        assert await bodies(reader) == [b"%d" % i for i in range(300)]
        for channels in (old_channels, new_channels):
            channels.close()
        await tasks.close()
        for server in servers.values():
            await server.stop()
        assert not crashes

    asyncio.run(scenario())
