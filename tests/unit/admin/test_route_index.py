# SPDX-License-Identifier: Apache-2.0
"""The index of routes finds what asking one route after another finds, and asks few."""

import re
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Match

from magnetar.admin.app import new_app
from magnetar.admin.coverage import sample_of
from magnetar.admin.known_paths import known_paths
from magnetar.admin.route_index import RouteIndex

APP = new_app()
INDEX = APP.router.routes[0]
ROUTES = [route for route in APP.router.routes if isinstance(route, APIRoute)]
ASKED = sorted({(method, sample_of(path)) for method, path in known_paths()})
# Words that stand in paths, and some that do not.
WORDS = sorted({word for _, path in known_paths() for word in re.split("[/{}]", path)} | {"", "x", "..", "%2F", "1"})


def scope_of(method: str, path: str) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}


def found(method: str, path: str) -> object:
    match, child = INDEX.matches(scope_of(method, path))
    return (child["route"], child["path_params"]) if match is Match.FULL else None


def found_one_by_one(method: str, path: str) -> object:
    for route in ROUTES:
        match, child = route.matches(scope_of(method, path))
        if match is Match.FULL:
            return route, child["path_params"]
    return None


def test_every_known_path_leads_to_the_route_that_it_led_to() -> None:
    assert isinstance(INDEX, RouteIndex)
    different = [asked for asked in ASKED if found(*asked) != found_one_by_one(*asked)]
    assert different == []
    assert sum(found(*asked) is not None for asked in ASKED) > 300


@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD", "BREW"]),
    start=st.sampled_from(["", "/admin/v2", "/admin/v2/namespaces/t/n", "/admin/v2/persistent/t/n/x", "/lookup/v2"]),
    words=st.lists(st.sampled_from(WORDS), max_size=8),
)
def test_any_path_leads_where_it_led(method: str, start: str, words: list[str]) -> None:
    path = "/".join([start, *words])
    assert found(method, path) == found_one_by_one(method, path)


def test_few_routes_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    matches = APIRoute.matches

    def counted(self: APIRoute, scope: Any) -> Any:
        asked.append(self.path)
        return matches(self, scope)

    monkeypatch.setattr(APIRoute, "matches", counted)
    most = 0
    for method, path in ASKED:
        asked.clear()
        found(method, path)
        most = max(most, len(asked))
    assert most <= 4


def test_what_is_no_request_of_http_is_not_for_it() -> None:
    assert INDEX.matches({"type": "websocket", "path": "/admin/v2/clusters"}) == (Match.NONE, {})


def test_of_two_routes_the_first_wins() -> None:
    app = FastAPI()
    for path in ("/a/{any}", "/a/b", "/{any}/b"):
        app.add_api_route(path, lambda: None)
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    assert RouteIndex(routes).matches(scope_of("GET", "/a/b"))[1]["route"] is routes[0]
    assert RouteIndex(routes[::-1]).matches(scope_of("GET", "/a/b"))[1]["route"] is routes[2]
