# SPDX-License-Identifier: Apache-2.0
"""Finds the route of a request by the segments of its path, instead of asking hundreds of routes one after another.

Stands before the routes that it knows and answers as they would: the first of them that takes method and path. A
request that none of them takes goes on to the routes themselves, which tell a wrong method from a wrong path.
Carries.
"""

from collections.abc import Iterator, Sequence

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send


class _Branch:
    """What may follow the segments that lead here: one that is named, or any; and the routes that end here."""

    __slots__ = ("any", "named", "routes")

    def __init__(self) -> None:
        self.named: dict[str, _Branch] = {}
        self.any: _Branch | None = None
        self.routes: list[tuple[int, APIRoute]] = []

    def at(self, segment: str) -> "_Branch":
        if "{" not in segment:
            return self.named.setdefault(segment, _Branch())
        if self.any is None:
            self.any = _Branch()
        return self.any

    def found(self, segments: Sequence[str], place: int = 0) -> Iterator[tuple[int, APIRoute]]:
        if place == len(segments):
            yield from self.routes
            return
        named = self.named.get(segments[place])
        if named is not None:
            yield from named.found(segments, place + 1)
        if self.any is not None:
            yield from self.any.found(segments, place + 1)


class RouteIndex(BaseRoute):
    """`routes` in the order in which they are tried. A parameter of theirs is one segment, or a part of one."""

    def __init__(self, routes: Sequence[APIRoute]) -> None:
        self._methods: dict[str, _Branch] = {}
        for order, route in enumerate(routes):
            for method in route.methods or ():
                branch = self._methods.setdefault(method, _Branch())
                for segment in route.path.split("/"):
                    branch = branch.at(segment)
                branch.routes.append((order, route))

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        branch = self._methods.get(scope["method"]) if scope["type"] == "http" else None
        if branch is None:
            return Match.NONE, {}
        for _, route in sorted(branch.found(scope["path"].split("/")), key=lambda each: each[0]):
            # The route itself has the last word: a parameter of its may take certain words only.
            match, found = route.matches(scope)
            if match is Match.FULL:
                return match, found
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["route"].handle(scope, receive, send)
