# SPDX-License-Identifier: Apache-2.0
"""`proxy-stats`: what WebSocket sessions of this process do; and the answer to who asks for them without an upgrade.

Carries.
"""

from typing import Final

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered
from magnetar.admin.parts import AdminParts, Parts, Topic
from magnetar.admin.websockets import WebSockets

router = APIRouter(tags=["websocket"])

STATS: Final = "/admin/v2/proxy-stats"
SOCKETS: Final = "/ws/{path:path}"


@router.get(STATS + "/metrics")
async def metrics(parts: Parts) -> Response:
    return answered(list(_served(parts).metrics()))


@router.get(STATS + "/stats")
async def stats(parts: Parts) -> Response:
    return answered(dict(_served(parts).statistics()))


@router.get(STATS + "/{domain:domain}/{tenant}/{namespace}/{topic}/stats")
async def topic_stats(parts: Parts, topic: Topic) -> Response:
    found = _served(parts).statistics().get(str(topic))
    if found is None:
        raise AdminRefused(404, "Topic does not exist")
    return answered(dict(found))


@router.get(SOCKETS)
async def no_upgrade(parts: Parts) -> Response:
    _served(parts)
    raise AdminRefused(405, "Here is a WebSocket: the request should ask for an upgrade (ws:// or wss://)")


def _served(parts: AdminParts) -> WebSockets:
    if parts.websockets is None:
        raise AdminRefused(404, "The WebSocket service is switched off: set webSocketServiceEnabled=true")
    return parts.websockets
