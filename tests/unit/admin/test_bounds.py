# SPDX-License-Identifier: Apache-2.0
"""Bounds around requests: too many, too large, too long, each answered and none left running."""

import asyncio
from typing import Any

import pytest

from magnetar.admin.bounds import Bounds, Message, Receive, Scope, Send
from magnetar.config.admin import AdminSettings


def scope(*headers: tuple[bytes, bytes], path: bytes = b"/a%2Fb") -> Scope:
    return {"type": "http", "method": "POST", "path": "/a/b", "raw_path": path, "headers": list(headers)}


async def call(bounds: Bounds, asked: Scope, *chunks: bytes) -> tuple[int, bytes]:
    left = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    sent: list[Message] = []

    async def receive() -> Message:
        return left.pop(0) if left else {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await bounds(asked, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def read_all(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


def test_a_path_is_matched_as_it_was_sent() -> None:
    assert asyncio.run(call(Bounds(read_all, AdminSettings()), scope())) == (200, b"/a%2Fb")


@pytest.mark.parametrize("headers", [[(b"content-length", b"11")], []])
def test_a_body_beyond_the_limit_is_refused_whether_it_says_so_or_not(headers: list[tuple[bytes, bytes]]) -> None:
    bounds = Bounds(read_all, AdminSettings(request_bytes_max=10))
    status, body = asyncio.run(call(bounds, scope(*headers), b"123456", b"78901"))
    assert (status, b"reason" in body, bounds.running) == (413, True, 0)


def test_a_request_beyond_the_limit_is_refused_and_the_others_go_on() -> None:
    async def scenario() -> list[int]:
        free = asyncio.Event()

        async def waits(scope: Scope, receive: Receive, send: Send) -> None:
            await free.wait()
            await read_all(scope, receive, send)

        bounds = Bounds(waits, AdminSettings(requests_max=1))
        async with asyncio.TaskGroup() as group:
            first: asyncio.Task[tuple[int, bytes]] = group.create_task(call(bounds, scope()))
            await asyncio.sleep(0)
            second = await call(bounds, scope())
            free.set()
        return [first.result()[0], second[0], (await call(bounds, scope()))[0]]

    assert asyncio.run(scenario()) == [200, 429, 200]


def test_a_request_that_takes_too_long_is_answered() -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    bounds = Bounds(never, AdminSettings(request_timeout_ms=1))
    status, _ = asyncio.run(call(bounds, scope()))
    assert (status, bounds.running) == (503, 0)


def test_a_failing_request_leaves_its_place() -> None:
    async def fails(*_: Any) -> None:
        raise RuntimeError("a bug")

    bounds = Bounds(fails, AdminSettings())
    with pytest.raises(RuntimeError):
        asyncio.run(call(bounds, scope()))
    assert bounds.running == 0


def test_no_tunnel_is_opened() -> None:
    """Whatever the application would say: after a success, the connection speaks HTTP no more."""
    assert asyncio.run(call(Bounds(read_all, AdminSettings()), {**scope(), "method": "CONNECT"}))[0] == 405


def test_an_answer_has_one_number_though_a_proxy_passes_it_on() -> None:
    async def passes_on(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"x-request-id", b"of-the-broker"), (b"x", b"y")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("there is no body")

    asyncio.run(Bounds(passes_on, AdminSettings())(scope((b"x-request-id", b"mine")), receive, send))
    assert sent[0]["headers"] == [(b"x", b"y"), (b"x-request-id", b"mine")]


@pytest.mark.feature("B-37")
def test_requests_above_the_rate_are_refused_with_a_time() -> None:
    async def scenario() -> None:
        free = Bounds(read_all, AdminSettings(requests_per_s=2.0))
        assert [(await call(free, scope()))[0] for _ in range(10)] == [200] * 10
        limited = Bounds(read_all, AdminSettings(requests_limited=True, requests_per_s=2.0))
        answers = [await call(limited, scope()) for _ in range(10)]
        statuses = [status for status, _ in answers]
        assert statuses[:2] == [200, 200]
        assert statuses[-1] == 429
        assert b"More than 2 requests" in answers[-1][1]

    asyncio.run(scenario())
