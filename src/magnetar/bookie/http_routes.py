# SPDX-License-Identifier: Apache-2.0
"""What an HTTP path of a bookie is: a question with its parameters, and an answer.

Decides.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

TEXT = "text/plain"


class Asked(NamedTuple):
    """The parameters behind the path, and the body."""

    query: Mapping[str, str]
    body: bytes

    def document(self) -> dict[str, Any]:
        """The body as a JSON object; ValueError when it is none."""
        try:
            value = json.loads(self.body or b"{}")
        except RecursionError as error:
            raise ValueError("the body nests too deeply") from error
        if not isinstance(value, dict):
            raise ValueError("the body is no JSON object")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """A parameter that is a whole number; ValueError when it is missing or none."""
        text = self.query.get(name)
        if text is None and default is not None:
            return default
        if text is None:
            raise ValueError(f"the parameter {name} is missing")
        return int(text)

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"


class Answer(NamedTuple):
    status: int
    body: str
    content_type: str = "application/json"


Route = Callable[[Asked], Awaitable[Answer]]
Routes = Mapping[tuple[str, str], Route]
"""By method and path."""


def answered(value: object) -> Answer:
    return Answer(200, json.dumps(value, indent=2) + "\n")


def said(sentence: str, status: int = 200) -> Answer:
    return Answer(status, sentence + "\n", TEXT)
