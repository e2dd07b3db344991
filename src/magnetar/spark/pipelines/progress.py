# SPDX-License-Identifier: Apache-2.0
"""How far a query is, from what Spark says of its last micro-batch: rows a second, and what waits in each partition.

Decides.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from magnetar.errors import BadSetting
from magnetar.spark.offsets import Offset, offsets_from_json


@dataclass(slots=True)
class Lag:
    """Of one topic partition. None where it is not known."""

    messages: int | None
    seconds: float | None = None


@dataclass(slots=True)
class QueryState:
    name: str
    # starting, running, waiting to retry, ended, failed, stopped
    state: str = "starting"
    batch: int = -1
    rows: int = 0
    rows_per_s: float = 0.0
    lag: dict[str, Lag] = field(default_factory=dict)
    failures: int = 0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def line(self) -> str:
        """For a person who watches."""
        waiting = [one for one in self.lag.values() if one.messages]
        messages = sum(one.messages or 0 for one in waiting)
        oldest = max((one.seconds or 0.0 for one in waiting), default=0.0)
        text = f"{self.name}: {self.state}"
        if self.batch >= 0:
            text += f", batch {self.batch}, {self.rows} rows, {self.rows_per_s:,.0f} rows/s"
            text += f", lag {messages} messages in {len(waiting)} partitions, {oldest:.0f} s" if waiting else ", no lag"
        return f"{text}; {self.error}" if self.error else text


def reached_offsets(progress: Mapping[str, Any]) -> dict[str, Offset]:
    """Of all topic sources: up to where the query has read."""
    found: dict[str, Offset] = {}
    for source in progress.get("sources") or ():
        found |= _offsets(source.get("endOffset"))
    return found


def lags(progress: Mapping[str, Any]) -> dict[str, Lag]:
    """Messages that wait in each topic partition, as of the last micro-batch."""
    found: dict[str, Lag] = {}
    for source in progress.get("sources") or ():
        ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for topic, offset in latest.items():
            reached = ends.get(topic)
            if offset.index is None or reached is None or reached.index is None:
                found[topic] = Lag(None)
            else:
                found[topic] = Lag(max(0, offset.index - reached.index))
    return found


def _offsets(value: object) -> dict[str, Offset]:
    """Those of our source; other sources' are something else."""
    try:
        written = json.loads(value) if isinstance(value, str) else value
        return offsets_from_json(written) if isinstance(written, dict) else {}
    except (ValueError, RecursionError, BadSetting):
        return {}


def updated(state: QueryState, progress: Mapping[str, Any] | None) -> QueryState:
    """The state with what a micro-batch says; rows are counted once for each batch.

    While nothing comes, Spark says now and then that the next batch has no rows.
    """
    if progress is None:
        return state
    batch, rows = int(progress.get("batchId", -1)), int(progress.get("numInputRows") or 0)
    if batch > state.batch and rows:
        state.rows += rows
        state.batch = batch
    state.rows_per_s = float(progress.get("processedRowsPerSecond") or 0.0)
    state.lag = lags(progress)
    return state
