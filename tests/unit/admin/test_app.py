# SPDX-License-Identifier: Apache-2.0
"""The application as a whole: nothing in it leaves the loop for a thread."""

import asyncio
import logging
from collections.abc import Iterator
from inspect import iscoroutinefunction

import pytest
from fastapi import FastAPI, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from magnetar.admin.answers import answered
from magnetar.admin.app import ROUTERS, all_routes, new_app
from magnetar.admin.at_owner import at_owner
from magnetar.admin.bodies import Body
from magnetar.admin.bounds import Bounds, Message
from magnetar.admin.door import let_in
from magnetar.config.admin import AdminSettings


def _calls(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for each in dependant.dependencies:
        yield from _calls(each)


def test_handlers_and_what_they_depend_on_run_on_the_loop() -> None:
    routes = [route for route in all_routes() if isinstance(route, APIRoute)]
    assert len(routes) > 100
    plain = {repr(call) for route in routes for call in _calls(route.dependant) if not iscoroutinefunction(call)}
    assert plain == set()


def test_routes_that_are_added_one_by_one_are_those_of_the_routers() -> None:
    included = FastAPI(title="Magnetar", version=new_app().version)
    for router in ROUTERS:
        included.include_router(router)
    assert new_app().openapi() == included.openapi()


def test_every_route_asks_who_comes_and_whose_the_topic_is() -> None:
    routes = [route for route in new_app().routes if isinstance(route, APIRoute)]
    assert len(routes) == len(all_routes())
    for route in routes:
        names = [getattr(each.call, "__name__", "") for each in route.dependant.dependencies]
        assert names[:2] == ["let_in", "at_owner"], route.path


@pytest.mark.parametrize(
    ("came", "status"),
    [
        ([{"type": "http.request", "body": b"[", "more_body": True}, {"type": "http.disconnect"}], 400),
        ([{"type": "http.request", "body": b"[" * 6, "more_body": True}] * 2, 413),
    ],
)
def test_a_body_that_breaks_off_or_does_not_end_is_no_bug(
    came: list[Message], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def echo(body: Body) -> Response:
        return answered(body)

    async def nothing_asked() -> None: ...

    app = new_app()
    app.dependency_overrides.update({let_in: nothing_asked, at_owner: nothing_asked})
    app.add_api_route("/echo", echo, methods=["POST"])
    messages, sent = iter(came), list[Message]()

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/echo",
        "raw_path": b"/echo",
        "headers": [],
        "query_string": b"",
    }
    with caplog.at_level(logging.WARNING):
        asyncio.run(Bounds(app, AdminSettings(request_bytes_max=10))(scope, receive, send))
    assert sent[0]["status"] == status
    assert ((b"connection", b"close") in sent[0]["headers"]) == (status == 413)
    assert caplog.records == []
