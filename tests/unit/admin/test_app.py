# SPDX-License-Identifier: Apache-2.0
"""The application as a whole: nothing in it leaves the loop for a thread."""

from collections.abc import Iterator
from inspect import iscoroutinefunction

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from magnetar.admin.app import ROUTERS, all_routes, new_app


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
