# SPDX-License-Identifier: Apache-2.0
"""A request's body as JSON, and the checks that a value of it is what it must be.

Carries.
"""

import json
from typing import Annotated, Any

from fastapi import Depends, Request

from magnetar.admin.answers import AdminRefused


async def _body(request: Request) -> Any:
    data = await request.body()
    if not data.strip():
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise AdminRefused(400, f"The body is not JSON: {error}") from error


async def _text(request: Request) -> str:
    data = await request.body()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise AdminRefused(400, "The body is not UTF-8") from error


Body = Annotated[Any, Depends(_body)]
TextBody = Annotated[str, Depends(_text)]


def an_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AdminRefused(400, f"{what} should be a JSON object")
    return value


def texts(value: Any, what: str) -> list[str]:
    """A list of strings without repetition, in its order."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise AdminRefused(400, f"{what} should be a list of strings")
    return list(dict.fromkeys(value))


def text_map(value: Any, what: str) -> dict[str, str]:
    found = {} if value is None else an_object(value, what)
    if not all(isinstance(each, str) for each in found.values()):
        raise AdminRefused(400, f"{what} should have strings for values")
    return found
