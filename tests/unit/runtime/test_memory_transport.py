# SPDX-License-Identifier: Apache-2.0
"""Bytes between two protocols without a socket: in order, whole, and with back-pressure."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.runtime.memory_transport import MemoryTransport, connect_in_memory


class Ear(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard = b""
        self.told: list[str] = []
        self.transport: MemoryTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


def pair() -> tuple[Ear, Ear]:
    one, other = Ear(), Ear()
    connect_in_memory(lambda: one, lambda: other, "test")
    return one, other


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.binary(max_size=300)),
            st.tuples(st.just("turn"), st.just(b"")),
            st.tuples(st.just("pause"), st.just(b"")),
            st.tuples(st.just("resume"), st.just(b"")),
        ),
        max_size=30,
    )
)
def test_what_is_written_arrives_in_order_whatever_pauses(steps: list[tuple[str, bytes]]) -> None:
    async def scenario() -> None:
        one, other = pair()
        one.transport.set_write_buffer_limits(high=500)
        written = b""
        for step, data in steps:
            if step == "write":
                written += data
                one.transport.write(data)
            elif step == "turn":
                await turns(1)
            elif step == "pause":
                other.transport.pause_reading()
            else:
                other.transport.resume_reading()
        other.transport.resume_reading()
        one.transport.close()
        await turns()
        assert other.heard == written
        assert one.told[-1] == other.told[-1] == "lost"

    asyncio.run(scenario())


def test_a_reader_that_pauses_pauses_the_writer() -> None:
    async def scenario() -> None:
        one, other = pair()
        one.transport.set_write_buffer_limits(high=100)
        other.transport.pause_reading()
        one.transport.write(bytes(101))
        assert one.told == ["pause"]
        await turns()
        assert other.heard == b""
        other.transport.resume_reading()
        await turns()
        assert one.told == ["pause", "resume"]
        assert len(other.heard) == 101

    asyncio.run(scenario())


@pytest.mark.parametrize("first", [0, 1])
def test_an_aborted_connection_ends_both_and_delivers_nothing_more(first: int) -> None:
    async def scenario() -> None:
        ends = pair()
        ends[0].transport.write(b"lost")
        ends[first].transport.abort()
        await turns()
        assert [end.heard for end in ends] == [b"", b""]
        assert [end.told for end in ends] == [["lost"], ["lost"]]
        ends[0].transport.write(b"nobody")
        await turns()
        assert ends[1].heard == b""

    asyncio.run(scenario())
