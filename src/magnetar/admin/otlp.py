# SPDX-License-Identifier: Apache-2.0
"""Metrics for an OpenTelemetry collector: what a scrape would say, sent every interval to where the operator says.

A collector that does not answer costs a warning and the numbers of this round. Never keeps more than a request.
Carries.
"""

import asyncio
import json
import logging
from typing import Final

import httpx

import magnetar
from magnetar.admin.metrics import scrape
from magnetar.admin.otlp_format import OtlpWriter
from magnetar.admin.parts import AdminParts
from magnetar.admin.slices import Turns
from magnetar.runtime.http_client import http_client

_PATH: Final = "/v1/metrics"
_TIMEOUT_S: Final = 10.0
_LINES_PER_SLICE: Final = 200

_log = logging.getLogger(__name__)


async def export_metrics(parts: AdminParts) -> None:
    """Runs as long as the broker does; ends at once where no collector is named."""
    endpoint = parts.settings.otlp_endpoint.rstrip("/")
    if not endpoint:
        return
    async with http_client(follow_redirects=False, timeout=_TIMEOUT_S) as client:
        while True:
            await asyncio.sleep(parts.settings.otlp_interval_s)
            try:
                await _export(parts, client, endpoint + _PATH)
            except (httpx.HTTPError, OSError) as error:
                _log.warning("metrics do not reach the collector at %s: %r", endpoint, error)


async def _export(parts: AdminParts, client: httpx.AsyncClient, url: str) -> None:
    resource = {
        "service.name": "magnetar-broker",
        "service.instance.id": parts.broker_id,
        "pulsar.cluster": parts.cluster,
    }
    writer = OtlpWriter(resource, magnetar.__version__, parts.clock.now_ms())
    turns = Turns(_LINES_PER_SLICE)
    async for piece in scrape(parts):
        for line in piece.decode().splitlines():
            for content in writer.feed(line):
                await _send(client, url, content)
            await turns.after()
    for content in writer.rest():
        await _send(client, url, content)


async def _send(client: httpx.AsyncClient, url: str, content: dict[str, object]) -> None:
    answer = await client.post(
        url, content=json.dumps(content, separators=(",", ":")), headers={"content-type": "application/json"}
    )
    answer.raise_for_status()
