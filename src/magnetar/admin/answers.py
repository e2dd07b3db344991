# SPDX-License-Identifier: Apache-2.0
"""What is answered: JSON as Pulsar's tools read it, an empty answer, or a refusal with its reason.

A refusal is `{"reason": …}` with the status that the error's class has in wire/error_codes.py, or with one of its own
where Pulsar's differs. Nothing of a traceback ever leaves the process.
Decides.
"""

import json
from typing import Any

from fastapi import Response

from magnetar.admin.sliced_answer import SLICE_ITEMS_MAX, SlicedAnswer
from magnetar.admin.sliced_json import SEPARATORS, items_up_to
from magnetar.errors import MagnetarError, Refused
from magnetar.wire.error_codes import codes_of

_JSON = "application/json"


class AdminRefused(Refused):
    """An expected no with the status that Pulsar gives it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def answered(value: Any) -> Response:
    """A value as JSON, in slices when it is large; what is not set is an empty answer."""
    if value is None:
        return Response(status_code=200)
    if items_up_to(value, SLICE_ITEMS_MAX) > SLICE_ITEMS_MAX:
        return SlicedAnswer(value)
    return Response(json.dumps(value, separators=SEPARATORS), media_type=_JSON)


def raw_answer(text: str) -> Response:
    """A text as it is under the type JSON, as Pulsar answers plain strings."""
    return Response(text, media_type=_JSON)


def done() -> Response:
    return Response(status_code=204)


def refused(status: int, reason: str) -> Response:
    return Response(json.dumps({"reason": reason}, separators=SEPARATORS), status_code=status, media_type=_JSON)


def refusal_of(error: MagnetarError) -> Response:
    status = error.status if isinstance(error, AdminRefused) else codes_of(error).http_status
    return refused(status, str(error))
