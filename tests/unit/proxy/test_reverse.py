# SPDX-License-Identifier: Apache-2.0
"""What of HTTP goes through a proxy to brokers: nothing outside its paths, nothing that is not whole."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.config.proxy import ProxySettings
from magnetar.errors import NotAuthorized
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.reverse import ReverseProxy
from magnetar.proxy.targets import Target
from magnetar.runtime.metrics import Metrics
from tests.conftest import RunOnLoop

pytestmark = [pytest.mark.feature("F-PXY-04")]

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole"


class Broker:
    """Keeps the heads and bodies that come, and gives everybody the same answer."""

    def __init__(self, answer: bytes) -> None:
        self.asked: list[bytes] = []
        self.heads: list[bytes] = []
        self._answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
        self.asked.append(head.split(b"\r\n")[0] + b" " + await reader.readexactly(int(length.partition(b":")[2])))
        writer.write(self._answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def passing(answer: bytes = ANSWER, strangers: Iterable[int] = ()) -> AsyncIterator[tuple[ReverseProxy, Broker]]:
    """A proxy and the broker behind it; redirects to ports of strangers are not followed."""

    async def check_redirect(target: Target) -> None:
        if target.port in strangers:
            raise NotAuthorized(f"{target} is a stranger")

    broker = Broker(answer)
    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    known: Any = SimpleNamespace(
        settings=ProxySettings(),
        brokers=SimpleNamespace(web_urls=lambda: [url], has_registry=False),
        broker_tls=None,
        authentication=None,
        client_authentication=None,
        metrics_authenticated=False,
        check_redirect=check_redirect,
    )
    reverse = ReverseProxy(cast("Proxy", known), Metrics())
    async with server, asyncio.timeout(20):
        yield reverse, broker
        await reverse.close()


async def ask(
    reverse: ReverseProxy, target: bytes, *headers: tuple[bytes, bytes], method: str = "GET", came: Iterable[Any] = ()
) -> list[Any]:
    """What the proxy sends: nothing, or the beginning of an answer and the rest."""
    path, _, query = target.partition(b"?")
    scope = {"type": "http", "method": method, "raw_path": path, "query_string": query, "headers": headers}
    messages = iter([*came, {"type": "http.request"}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    await reverse(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    "path",
    [
        b"/admin/../metrics",
        b"/admin/v2/../../metrics",
        b"/admin/%2e%2E/metrics",
        b"/admin/..;/metrics",
        b"/admin/..%3Bname=value/metrics",
        b"/admin/v2/x%2F..%2f..%2fmetrics",
        b"/lookup/./../metrics",
        b"/topics/..\\metrics",
        b"/admin/..%5Cmetrics",
        b"/admin/./x",
        b"/admin/%u002e%u002e/metrics",
        b"/admin/%2%65%2%65/metrics",
        b"/admin/..%00/metrics",
        b"/admin/x%",
    ],
)
def test_a_path_does_not_climb_out_of_what_is_passed_on(path: bytes, loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with passing() as (reverse, broker):
            assert (await ask(reverse, path))[0]["status"] == 400
            assert broker.asked == []

    loop_run(scenario())


@pytest.mark.parametrize(
    "target", [b"/admin/#a", b"/admin/v2/tenants?a=b#c", b"/admin/\x7f", b"/admin/" + b"x" * 70_000]
)
def test_what_is_no_path_of_a_url_is_the_clients_fault(target: bytes, loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with passing() as (reverse, broker):
            assert (await ask(reverse, target))[0]["status"] == 400
            assert broker.asked == []

    loop_run(scenario())


def test_names_with_dots_and_encoded_slashes_go_through_as_they_are(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with passing() as (reverse, broker):
            for path in (
                b"/admin/v2/persistent/a/b/c%2Fd.e/stats",
                b"/lookup/v2/topic/persistent/a/b/...",
                b"/topics/.x",
            ):
                start, *rest = await ask(reverse, path)
                assert (start["status"], b"".join(each["body"] for each in rest)) == (200, b"whole")
                assert broker.asked.pop() == b"GET " + path + b" HTTP/1.1 "

    loop_run(scenario())


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "BREW", "get", "head", "Delete"])
def test_methods_that_brokers_do_not_know_as_they_are_written_are_refused(method: str, loop_run: RunOnLoop) -> None:
    """A success that answers CONNECT is the end of HTTP on that connection; TRACE would say what the proxy says."""

    async def scenario() -> None:
        async with passing() as (reverse, broker):
            for path in (b"/metrics", b"/status.html", b"/admin/v2/tenants", b"*"):
                start = (await ask(reverse, path, method=method))[0]
                assert start["status"] == 405
                assert (b"allow", b"GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH") in start["headers"]
            assert broker.asked == []

    loop_run(scenario())


def test_a_broker_hears_nothing_that_the_client_did_not_say(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with passing() as (reverse, broker):
            await ask(reverse, b"/admin/v2/tenants")
            await ask(reverse, b"/admin/v2/tenants", (b"accept-encoding", b"gzip"))
            plain, packed = (sorted(head.lower().split(b"\r\n")[1:-2]) for head in broker.heads)
            assert [line.partition(b":")[0] for line in plain] == [b"host"]
            assert [line for line in packed if line not in plain] == [b"accept-encoding: gzip"]

    loop_run(scenario())


def test_who_says_twice_who_he_is_is_refused(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        said = (b"authorization", b"Bearer x")
        async with passing() as (reverse, broker):
            for path in (b"/metrics", b"/admin/v2/tenants"):
                assert (await ask(reverse, path, said, said))[0]["status"] == 400
            assert (await ask(reverse, b"/admin/v2/tenants", said))[0]["status"] == 200
            assert len(broker.asked) == 1

    loop_run(scenario())


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        (b"http://[::1", b"RemoteProtocolError"),
        (b"https:///x", b"InvalidURL"),
        (b"http://127.0.0.1:99999/x", b"InvalidURL"),
        (b"ftp://127.0.0.1/", b"UnsupportedProtocol"),
        (b"http://127.0.0.1:7/x", b"127.0.0.1:7 is a stranger"),
        (b"//127.0.0.1:7/x", b"127.0.0.1:7 is a stranger"),
    ],
)
def test_a_redirect_that_leads_astray_is_not_followed(location: bytes, reason: bytes, loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        answer = b"HTTP/1.1 307 Go\r\nlocation: " + location + b"\r\ncontent-length: 0\r\n\r\n"
        async with passing(answer, strangers=[7]) as (reverse, broker):
            start, said = await ask(reverse, b"/admin/v2/tenants")
            assert start["status"] == 502
            assert reason in said["body"]
            assert len(broker.asked) == 1

    loop_run(scenario())


def test_half_a_body_does_not_reach_a_broker_as_a_whole_one(loop_run: RunOnLoop) -> None:
    """`16` partitions of which the client sent one figure would be one partition."""

    async def scenario() -> None:
        path = b"/admin/v2/persistent/a/b/c/partitions"
        half = {"type": "http.request", "body": b"1", "more_body": True}
        async with passing() as (reverse, broker):
            assert await ask(reverse, path, method="PUT", came=[half, {"type": "http.disconnect"}]) == []
            assert broker.asked == []
            await ask(reverse, path, method="PUT", came=[half, {"type": "http.request", "body": b"6"}])
            assert broker.asked == [b"PUT " + path + b" HTTP/1.1 16"]

    loop_run(scenario())


def test_an_answer_that_breaks_off_ends_without_a_crash(loop_run: RunOnLoop, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with passing(ANSWER[:-2]) as (reverse, _):
            start, *rest = await ask(reverse, b"/admin/v2/tenants")
            assert start["status"] == 200
            # Not told to be whole.
            assert all(each["more_body"] for each in rest)
            assert "broke off in the middle of an answer" in caplog.text

    loop_run(scenario())
