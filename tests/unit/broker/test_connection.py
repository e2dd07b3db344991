# SPDX-License-Identifier: Apache-2.0
"""One connection over a transport that the test holds: when it reads, when it stops, and when it gives a client up."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, cast

import pytest

from magnetar.broker.connection import Connection
from magnetar.broker.publish_budget import PublishBudget
from magnetar.broker.session.session import Session
from magnetar.config.broker import BrokerSettings
from magnetar.wire import frame
from magnetar.wire.hot import PING, encode_receipts
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.schedule import Policy, Schedule


class Transport:
    def __init__(self) -> None:
        self.is_reading = True
        self.resumed = asyncio.Event()
        self.written: list[bytes] = []
        self.is_closed = False
        self.on_abort: Callable[[], None] = lambda: None

    def set_write_buffer_limits(self, high: int) -> None:
        self.write_bytes_max = high

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 5555)

    def pause_reading(self) -> None:
        assert self.is_reading, "paused twice"
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading, "resumed twice"
        self.is_reading = True
        self.resumed.set()

    def writelines(self, data: list[bytes]) -> None:
        self.written += [bytes(each) for each in data]

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True
        self.on_abort()


class Frames:
    """A session that only keeps what it gets."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.is_connected = True
        self.woken = 0
        self.lost = False

    def on_frames(self, frames: list[tuple[bytes, bytes]]) -> None:
        self.commands += [command for command, _ in frames]

    def on_writable(self) -> None:
        self.woken += 1

    def on_connection_lost(self) -> None:
        self.lost = True


class World:
    def __init__(self, **settings: Any) -> None:
        self.settings = BrokerSettings(**settings)
        self.budget = PublishBudget(self.settings.process_publish_bytes_max)

    def connect(self) -> tuple[Connection, Transport, Frames]:
        session, transport = Frames(), Transport()
        connection = Connection(self.settings, self.budget, lambda _: cast("Session", session), lambda connection: None)
        transport.on_abort = lambda: connection.connection_lost(None)
        connection.connection_made(cast("asyncio.BaseTransport", transport))
        return connection, transport, session


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def run_in_no_time(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(Policy.FIFO, Random(1)))) as runner:
        runner.run(coroutine)


def test_reading_stops_at_the_connections_mark_and_goes_on_at_half_of_it() -> None:
    async def main() -> None:
        connection, transport, _ = World(connection_publish_bytes_max=100).connect()
        connection.take_publish_bytes(99)
        assert transport.is_reading
        connection.take_publish_bytes(1)
        assert not transport.is_reading
        connection.budget.give_back(49)
        assert not transport.is_reading
        connection.budget.give_back(1)
        assert transport.is_reading
        connection.connection_lost(None)

    run(main())


def test_reading_stops_at_the_processs_mark_for_whoever_publishes() -> None:
    async def main() -> None:
        world = World(process_publish_bytes_max=100)
        one, one_transport, _ = world.connect()
        two, two_transport, _ = world.connect()
        one.take_publish_bytes(99)
        two.take_publish_bytes(1)
        assert (one_transport.is_reading, two_transport.is_reading) == (True, False)
        one.budget.give_back(50)
        assert two_transport.is_reading
        one.connection_lost(None)
        two.connection_lost(None)

    run(main())


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    """F140: what it does not take holds up what it may ask."""

    async def main() -> None:
        connection, transport, session = World().connect()
        connection.pause_writing()
        assert not transport.is_reading
        assert not connection.is_writable
        connection.resume_writing()
        assert transport.is_reading
        assert session.woken == 1
        connection.connection_lost(None)

    run(main())


def test_a_client_that_is_too_fast_is_left_alone_for_a_while() -> None:
    async def main() -> None:
        connection, transport, _ = World().connect()
        connection.hold_back(60.0)
        connection.hold_back(1.0)
        assert not transport.is_reading
        connection.take_publish_bytes(1)
        connection.budget.give_back(1)
        assert not transport.is_reading, "another reason to go on does not end the wait"
        connection.connection_lost(None)

        connection, transport, _ = World().connect()
        connection.hold_back(0.001)
        async with asyncio.timeout(10):
            await transport.resumed.wait()
        connection.connection_lost(None)

    run(main())


def test_a_frame_that_is_too_large_closes_the_connection_before_it_comes() -> None:
    async def main() -> None:
        connection, transport, session = World(message_bytes_max=1_000).connect()
        connection.data_received(frame.join(b"\x08\x12"))
        assert len(session.commands) == 1
        connection.data_received((1_000 + 64 * 1024).to_bytes(4, "big"))
        assert transport.is_closed
        connection.data_received(frame.join(b"\x08\x12"))
        assert len(session.commands) == 1, "nothing more is taken from it"
        connection.connection_lost(None)

    run(main())


@pytest.mark.parametrize("is_answering", [True, False])
def test_a_client_is_asked_whether_it_is_there(is_answering: bool) -> None:
    async def main() -> None:
        connection, transport, session = World(liveness_check_timeout_ms=10_000 if is_answering else 1).connect()
        asked = [asyncio.get_running_loop().create_task(connection.answers()) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert transport.written == [PING, PING]
        if is_answering:
            connection.data_received(frame.join(b"\x08\x13"))
        assert [await each for each in asked] == [is_answering, is_answering]
        assert transport.is_closed is session.lost is not is_answering
        if is_answering:
            connection.connection_lost(None)
        assert not await connection.answers(), "one that is gone answers nothing"

    run(main())


def test_the_silence_of_a_client_that_is_not_listened_to_proves_nothing() -> None:
    async def main() -> None:
        connection, transport, _ = World(liveness_check_timeout_ms=1).connect()
        connection.hold_back(60.0)
        assert await connection.answers()
        assert not transport.is_closed
        connection.connection_lost(None)

    run(main())


def test_whoever_waits_for_an_answer_learns_that_the_connection_is_gone() -> None:
    async def main() -> None:
        connection, _, _ = World().connect()
        asked = asyncio.get_running_loop().create_task(connection.answers())
        await asyncio.sleep(0)
        connection.connection_lost(None)
        assert not await asked

    run(main())


def test_a_half_open_peer_is_closed_when_it_lets_two_pings_go_by() -> None:
    async def main() -> None:
        connection, transport, session = World(keep_alive_interval_s=30).connect()
        connection.data_received(frame.join(b"\x08\x13"))
        for pings in (1, 2):
            await asyncio.sleep(30.0)
            assert transport.written == [PING] * pings
            assert not transport.is_closed
        await asyncio.sleep(30.0)
        assert transport.is_closed
        assert session.lost

    run_in_no_time(main())


def test_a_peer_that_answers_stays_however_little_else_it_says() -> None:
    async def main() -> None:
        connection, transport, _ = World(keep_alive_interval_s=30).connect()
        for _ in range(20):
            await asyncio.sleep(45.0)
            connection.data_received(frame.join(b"\x08\x13"))
        assert not transport.is_closed
        connection.connection_lost(None)

    run_in_no_time(main())


def test_a_peer_that_is_not_read_from_is_not_held_to_be_silent() -> None:
    async def main() -> None:
        connection, transport, _ = World(keep_alive_interval_s=30, connection_publish_bytes_max=100).connect()
        connection.take_publish_bytes(100)
        await asyncio.sleep(300.0)
        assert not transport.is_closed
        connection.budget.give_back(100)
        await asyncio.sleep(300.0)
        assert transport.is_closed

    run_in_no_time(main())


def test_who_connects_and_never_says_so_is_closed_after_one_interval() -> None:
    """F141: and it is sent nothing."""

    async def main() -> None:
        _, transport, session = World(keep_alive_interval_s=30).connect()
        session.is_connected = False
        await asyncio.sleep(29.0)
        assert not transport.is_closed
        await asyncio.sleep(2.0)
        assert transport.is_closed
        assert not transport.written

    run_in_no_time(main())


def test_receipts_go_out_together_and_nothing_overtakes_them() -> None:
    async def main() -> None:
        connection, transport, _ = World().connect()
        connection.take_publish_bytes(500)
        receipts = [(producer_id, 7, 40 + producer_id, 3, 0) for producer_id in range(4)]
        for receipt in receipts[:2]:
            connection.send_receipt(receipt, 100)
        connection.send(b"an answer")
        connection.send_receipt(receipts[2], 100)
        connection.send_all([b"some", b"messages"], 12)
        connection.send_receipt(receipts[3], 100)
        await asyncio.sleep(0)
        expected = [encode_receipts(receipts[:2]), b"an answer", encode_receipts(receipts[2:3]), b"some", b"messages"]
        assert transport.written == [*expected, encode_receipts(receipts[3:])]
        assert connection.budget.bytes_pending == 100
        connection.send_receipt(receipts[0], 60)
        connection.connection_lost(None)
        connection.send_receipt(receipts[0], 40)
        await asyncio.sleep(0)
        assert len(transport.written) == 6, "nobody is there"
        assert connection.budget.bytes_pending == 0, "what is stored is given back, whoever is there"

    run(main())
