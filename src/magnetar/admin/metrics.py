# SPDX-License-Identifier: Apache-2.0
"""`GET /metrics`: written a slice at a time, kept for a moment, and streamed when it is too large to keep.

One scrape is written at a time, whoever asks; those who come meanwhile get the same text. Text beyond the limit is not
kept: it goes to its reader as it is written, so that neither memory nor the loop notices how many topics there are.
Carries.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from magnetar.admin.broker_metrics import own_lines
from magnetar.admin.metric_tables import Looks
from magnetar.admin.metric_text import Levels, Sums, broker_lines, namespace_lines, topic_lines
from magnetar.admin.parts import AdminParts, Parts
from magnetar.admin.slices import Turns
from magnetar.broker.served import ServedTopic
from magnetar.runtime.metrics import CONTENT_TYPE

router = APIRouter(tags=["metrics"])
_LINES_PER_SLICE: Final = 200
_TOPICS_PER_SLICE: Final = 10


class Scrapes:
    """The text of the last scrape, for as long as it is fresh."""

    __slots__ = ("_kept", "_kept_until_s", "_turn")

    def __init__(self) -> None:
        self._kept: list[bytes] | None = None
        self._kept_until_s = 0.0
        self._turn = asyncio.Lock()

    async def pieces(self, parts: AdminParts) -> tuple[list[bytes], AsyncIterator[bytes] | None]:
        """What can be sent at once, and where the rest comes from when there is more than is kept."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            if self._kept is not None and loop.time() < self._kept_until_s:
                return self._kept, None
            self._kept = None
            written: list[bytes] = []
            size = 0
            rest = scrape(parts)
            async for piece in rest:
                written.append(piece)
                size += len(piece)
                if size > parts.settings.metrics_kept_bytes_max:
                    return written, rest
            self._kept = written
            self._kept_until_s = loop.time() + parts.settings.metrics_kept_ms / 1000
            return written, None


@router.get("/metrics")
@router.get("/metrics/", include_in_schema=False)
async def metrics(parts: Parts) -> Response:
    written, rest = await parts.scrapes.pieces(parts)
    if rest is None:
        return Response(b"".join(written), media_type=CONTENT_TYPE)
    return StreamingResponse(_chained(written, rest), media_type=CONTENT_TYPE)


async def scrape(parts: AdminParts) -> AsyncIterator[bytes]:
    settings = parts.settings
    looks = Looks(parts.rates, parts.ages, parts.clock.now_ms())
    async for piece in _sliced(own_lines(parts)):
        yield piece
    topics: list[ServedTopic] = [*parts.broker.topics.loaded(), *parts.broker.topics.in_memory()]
    namespaces: dict[str, Sums] = {}
    turns = Turns(_TOPICS_PER_SLICE)
    for topic in topics:
        for weight in namespaces.setdefault(str(topic.name.namespace), Sums()).adding(topic, looks):
            await turns.after(weight)
    async for piece in _sliced(broker_lines(parts.cluster, namespaces)):
        yield piece
    levels = Levels(
        settings.metrics_topic_level and len(topics) <= settings.metrics_topics_max,
        settings.metrics_consumer_level,
        settings.metrics_producer_level,
        settings.metrics_partition_label,
    )
    if levels.topics:
        lines = topic_lines(parts.cluster, topics, looks, levels)
    else:
        lines = namespace_lines(parts.cluster, namespaces)
    async for piece in _sliced(lines):
        yield piece


async def _chained(first: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for piece in first:
        yield piece
    async for piece in rest:
        yield piece


async def _sliced(lines: Iterator[str]) -> AsyncIterator[bytes]:
    batch: list[str] = []
    turns = Turns()
    for line in lines:
        batch.append(line)
        if len(batch) >= _LINES_PER_SLICE:
            yield ("\n".join(batch) + "\n").encode()
            batch.clear()
            await turns.others()
    if batch:
        yield ("\n".join(batch) + "\n").encode()
