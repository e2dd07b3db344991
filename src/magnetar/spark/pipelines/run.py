# SPDX-License-Identifier: Apache-2.0
"""A pipeline at work: its queries are started, watched, and started again after a failure, with growing pauses.

Whatever ends a query, the next start goes on from its checkpoint. `turn` is called again and again by whoever runs the
pipeline; it waits a moment and gives the state of every query.
Carries.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from magnetar.errors import MagnetarError
from magnetar.ids import Position
from magnetar.runtime.clock import SystemClock
from magnetar.spark.cluster import Cluster, cluster
from magnetar.spark.offsets import Place
from magnetar.spark.options import source_options
from magnetar.spark.pipelines.frames import FrameBuilder, Frames
from magnetar.spark.pipelines.progress import Lag, QueryState, reached_offsets, updated
from magnetar.spark.pipelines.sinks import Sinks
from magnetar.spark.pipelines.spec import PipelineSpec, Sink
from magnetar.spark.positions import Positions
from magnetar.spark.sentences import QueryFailed, failed, sentence_of

_TURN_S: Final = 1
_LAG_INTERVAL_MS: Final = 5_000
_LAG_TIMEOUT_S: Final = 5.0


class _Running:
    """One sink's query."""

    def __init__(self, name: str, sink: Sink, frame: DataFrame) -> None:
        self.sink = sink
        self.frame = frame
        self.query: StreamingQuery | None = None
        self.state = QueryState(name)
        self.retry_at_ms: int | None = None
        self.looked_ms = 0


class PipelineRun:
    def __init__(
        self, spark: SparkSession, spec: PipelineSpec, builder: FrameBuilder, *, only_now: bool = False
    ) -> None:
        """`only_now`: a stream reads what is there and ends."""
        self._spark = spark
        self._spec = spec
        self._reach = source_options({**builder.connection, "topic": "any"}, streaming=False).connection
        self._sinks = Sinks(spec, builder.connection)
        self._only_now = only_now
        self._clock = SystemClock()
        self._frames = builder.build()
        self._running = [_Running(sink.name, sink, frame) for sink, frame in self._targets(self._frames)]
        self._is_stopping = False

    def _targets(self, frames: Frames) -> list[tuple[Sink, DataFrame]]:
        found = [(sink, frames.by_name[sink.source]) for sink in self._spec.sinks]
        if frames.bad:
            whole = frames.bad[0]
            for one in frames.bad[1:]:
                whole = whole.unionByName(one)
            found.append((self._sinks.dead_letters(), whole))
        return found

    @property
    def states(self) -> list[QueryState]:
        return [one.state for one in self._running]

    @property
    def is_done(self) -> bool:
        return all(one.state.state in ("ended", "failed", "stopped") for one in self._running)

    def start(self) -> None:
        """A batch pipeline is done when this returns; a stream goes on in `turn`."""
        for one in self._running:
            if one.frame.isStreaming:
                self._begin(one)
            else:
                self._write(one)

    def _write(self, one: _Running) -> None:
        while one.state.state != "ended":
            try:
                self._sinks.write(one.sink, one.frame)
                one.state.state = "ended"
            except Exception as error:
                self._failed(one, error)
                if one.state.state == "failed":
                    raise failed(error) from None
                asyncio.run(self._clock.pause(self._spec.retries.pause_s(one.state.failures)))

    def _begin(self, one: _Running) -> None:
        try:
            one.query = self._sinks.start(one.sink, one.frame, only_now=self._only_now)
            one.state.state, one.state.error, one.retry_at_ms = "running", None, None
        except Exception as error:
            self._failed(one, error)

    def _failed(self, one: _Running, error: BaseException) -> None:
        one.state.failures += 1
        one.state.error = sentence_of(error)
        if one.state.failures > self._spec.retries.times or isinstance(error, MagnetarError):
            one.state.state = "failed"
            return
        one.state.state = "waiting to retry"
        one.retry_at_ms = self._clock.now_ms() + int(self._spec.retries.pause_s(one.state.failures) * 1000)

    def turn(self) -> list[QueryState]:
        """Wait a moment, look at every query, start again those whose pause is over."""
        active = next((one.query for one in self._running if one.query is not None and one.query.isActive), None)
        if active is None:
            asyncio.run(self._clock.pause(_TURN_S))
        else:
            # Why it ended is looked at below, with the others.
            with contextlib.suppress(Exception):
                active.awaitTermination(_TURN_S)
        for one in self._running:
            self._look(one)
        return self.states

    def _look(self, one: _Running) -> None:
        query = one.query
        if one.state.state == "waiting to retry" and self._clock.now_ms() >= (one.retry_at_ms or 0):
            self._begin(one)
            return
        if query is None or one.state.state != "running":
            return
        before, is_active = one.state.batch, query.isActive
        progress = query.lastProgress
        for each in query.recentProgress:
            updated(one.state, each)
        if one.state.batch > before:
            one.state.failures = 0
        if progress is not None and self._clock.now_ms() - one.looked_ms > _LAG_INTERVAL_MS:
            one.looked_ms = self._clock.now_ms()
            self._add_ages(one.state, dict(progress))
        if is_active:
            return
        error = query.exception()
        if error is not None and not self._is_stopping:
            self._failed(one, error)
        else:
            one.state.state = "stopped" if self._is_stopping else "ended"

    def _add_ages(self, state: QueryState, progress: Mapping[str, object]) -> None:
        """How long the next message of each partition that lags has waited; unknown where nobody answers."""
        reached = reached_offsets(progress)
        here = cluster(self._reach)
        for topic, lag in state.lag.items():
            offset = reached.get(topic)
            if lag.messages and offset is not None and offset.after is not None:
                try:
                    lag.seconds = here.run(self._age(here, topic, offset.after))
                except (MagnetarError, TimeoutError):
                    state.lag[topic] = Lag(lag.messages)

    async def _age(self, here: Cluster, topic: str, after: Place) -> float | None:
        behind = Position(after.ledger_id, after.entry_id + (after.messages is None))
        async with asyncio.timeout(_LAG_TIMEOUT_S):
            found = await Positions(here.core(), topic, _LAG_TIMEOUT_S).first_from(behind)
        return None if found is None else max(0.0, (self._clock.now_ms() - found.metadata.publish_time) / 1000)

    def stop(self) -> None:
        """End every query; their checkpoints say how far they are."""
        self._is_stopping = True
        for one in self._running:
            if one.query is not None and one.query.isActive:
                one.query.stop()
            if one.state.state not in ("ended", "failed"):
                one.state.state = "stopped"

    def check(self) -> None:
        """Raises QueryFailed if a query failed for good."""
        for one in self._running:
            if one.state.state == "failed":
                raise QueryFailed(f"sink {one.sink.name}: {one.state.error}")
