# SPDX-License-Identifier: Apache-2.0
"""The no of a WebSocket service while a request is still one of HTTP: Pulsar's statuses, and a reason in JSON.

Decides.
"""

from typing import Final

from websockets.http11 import Response

from magnetar import errors
from magnetar.websocket.handshake import refusal

# What is not here is 500.
_STATUS: Final[tuple[tuple[type[errors.MagnetarError], int], ...]] = (
    (errors.NotAuthenticated, 401),
    (errors.NotAuthorized, 403),
    (errors.TopicNotFound, 404),
    (errors.ProducerBusy, 409),
    (errors.ConsumerBusy, 409),
    (errors.ProducerFenced, 409),
    (errors.IncompatibleSchema, 409),
    (errors.TooManyRequests, 429),
    (errors.QuotaExceeded, 503),
    (errors.TopicTerminated, 503),
    (errors.ServiceNotReady, 503),
    (errors.TimedOut, 504),
    (errors.BadSetting, 400),
    (errors.BadName, 400),
)


def status_of(error: errors.MagnetarError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def refusal_of(error: errors.MagnetarError) -> Response:
    status = status_of(error)
    match status:
        case 400:
            reason = f"Invalid query params: {error}"
        case 401:
            reason = f"Failed to authenticate: {error}"
        case 403:
            reason = f"Not authorized: {error}"
        case _:
            reason = f"Failed to create producer/consumer: {error}"
    return refusal(status, reason)
