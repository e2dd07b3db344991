# SPDX-License-Identifier: Apache-2.0
"""The network of benchmarks that takes its time: how late things arrive, in which order, and when a connection ends."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from benchmarks.links import HOST, Link, _End

LIMIT_S = 20.0


@contextmanager
def through(link: Link, listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_connection((HOST, listener.getsockname()[1]), LIMIT_S) as near:
        far, _ = listener.accept()
        with far:
            far.settimeout(LIMIT_S)
            yield near, far


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(LIMIT_S)
        yield found


def test_everything_is_late_by_the_delay_both_ways(listener: socket.socket) -> None:
    with Link(listener.getsockname()[1], 100) as link, through(link, listener) as (near, far):
        for source, target in ((near, far), (far, near)):
            began = time.perf_counter()
            source.sendall(b"here")
            assert target.recv(4) == b"here"
            assert time.perf_counter() - began >= 0.1


def test_nothing_waits_for_another_and_what_came_later_does_not_pass() -> None:
    async def scenario() -> None:
        delay_ms = SimpleNamespace(value=200.0)
        near, far = _End(delay_ms), _End(delay_ms)
        came: list[bytes] = []
        all_came = asyncio.Event()

        def write(data: bytes) -> None:
            came.append(data)
            if len(came) == 5:
                all_came.set()

        far.write = write  # type: ignore[method-assign]
        near.data_received(b"1")
        near.join(far)
        began = time.perf_counter()
        for number in (b"2", b"3", b"4"):
            near.data_received(number)
        delay_ms.value = 0.0
        near.data_received(b"5")
        async with asyncio.timeout(LIMIT_S):
            await all_came.wait()
        assert came == [b"1", b"2", b"3", b"4", b"5"]
        assert time.perf_counter() - began < 3 * 0.2

    asyncio.run(scenario())


def test_a_connection_that_ends_at_one_side_ends_at_the_other_behind_what_was_sent(listener: socket.socket) -> None:
    with Link(listener.getsockname()[1], 50) as link, through(link, listener) as (near, far):
        near.sendall(b"last words")
        near.close()
        assert far.recv(10) == b"last words"
        assert far.recv(1) == b""
