# SPDX-License-Identifier: Apache-2.0
"""The application as a whole: nothing in it leaves the loop for a thread."""

from collections.abc import Iterator
from inspect import iscoroutinefunction

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from magnetar.admin.app import all_routes


def _calls(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for each in dependant.dependencies:
        yield from _calls(each)


def test_handlers_and_what_they_depend_on_run_on_the_loop() -> None:
    routes = [route for route in all_routes() if isinstance(route, APIRoute)]
    assert len(routes) > 100
    plain = {repr(call) for route in routes for call in _calls(route.dependant) if not iscoroutinefunction(call)}
    assert plain == set()
