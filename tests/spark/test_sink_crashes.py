# SPDX-License-Identifier: Apache-2.0
"""The sink over a crash before and after every step, replayed with other rows orders, cuts and values: once each.

No Spark here: the writer is called as Spark calls it, so that a crash can be put between any two of its steps.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.datasource import WriterCommitMessage

from magnetar.errors import DamagedRecord
from magnetar.spark import committer, publisher, sink_log
from magnetar.spark.source import PulsarDataSource
from magnetar.spark.stream_writer import PulsarStreamWriter
from tests.processes import StandaloneProcess

pytestmark = pytest.mark.usefixtures("small_batches")

COLUMNS = types.StructType(
    [types.StructField("value", types.BinaryType()), types.StructField("__key", types.StringType())]
)


class Crash(Exception):
    """Stands for the end of the process at this point."""


def crash_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool, turn: int = 1) -> None:
    """The `turn`-th call of a step ends in a crash, before or after it did its work."""
    step: Callable[..., Any] = getattr(owner, name)
    calls = 0

    async def crashing(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != turn:
            return await step(*arguments, **options)
        if after:
            await step(*arguments, **options)
        raise Crash(name)

    monkeypatch.setattr(owner, name, crashing)


def crash_in_the_middle(monkeypatch: pytest.MonkeyPatch, after_batches: int) -> None:
    """Publishing ends after so many of the staged batches, which are stored."""
    staged = publisher.Publisher._staged

    async def crashing(self: publisher.Publisher, manifest: Any) -> Any:
        count = 0
        async for batch in staged(self, manifest):
            if count == after_batches:
                for producer in self._producers.values():
                    await producer.flush()
                raise Crash("in the middle")
            count += 1
            yield batch

    monkeypatch.setattr(publisher.Publisher, "_staged", crashing)


POINTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "log-not-open": lambda patch: crash_at(patch, sink_log.SinkLog, "open", after=False),
    "log-open": lambda patch: crash_at(patch, sink_log.SinkLog, "open", after=True),
    "not-decided": lambda patch: crash_at(patch, sink_log.SinkLog, "write", after=False),
    "decided": lambda patch: crash_at(patch, sink_log.SinkLog, "write", after=True),
    "first-batch": lambda patch: crash_in_the_middle(patch, 1),
    "in-the-middle": lambda patch: crash_in_the_middle(patch, 6),
    "published": lambda patch: crash_at(patch, publisher.Publisher, "publish", after=True),
    "not-done": lambda patch: crash_at(patch, sink_log.SinkLog, "write", after=False, turn=2),
    "done": lambda patch: crash_at(patch, sink_log.SinkLog, "write", after=True, turn=2),
    "log-trimmed": lambda patch: crash_at(patch, sink_log.SinkLog, "trim", after=True),
    "staging-trimmed": lambda patch: crash_at(patch, committer, "move", after=True),
}


def writer(standalone: StandaloneProcess, topic: str, **more: str) -> PulsarStreamWriter:
    options = {"service.url": standalone.service_url, "topic": topic, "sinkId": topic.rsplit("/", 1)[1][-90:], **more}
    made = PulsarDataSource(options).streamWriter(COLUMNS, False)
    assert isinstance(made, PulsarStreamWriter)
    return made


def run_batch(standalone: StandaloneProcess, topic: str, batch: int, seed: int) -> None:
    sink = writer(standalone, topic)
    sink.commit(stage(sink, batch, seed), batch)


def stage(sink: PulsarStreamWriter, batch: int, seed: int) -> list[WriterCommitMessage | None]:
    """As Spark runs a batch: rows in any order, cut into any number of tasks, one attempt of which is lost."""
    chance = random.Random(seed)
    rows = [(f"{batch}-{number}", f"k{number % 5}") for number in range(200)]
    chance.shuffle(rows)
    tasks = chance.randrange(1, 4)
    staged: list[WriterCommitMessage | None] = []
    for task in range(tasks):
        part = rows[task::tasks]
        columns = {"value": [value.encode() for value, _ in part], "__key": [key for _, key in part]}
        cut = pa.RecordBatch.from_pydict(columns)
        if task == 0:
            sink.write(iter([cut]))
        staged.append(sink.write(iter([cut.slice(0, 50), cut.slice(50)])))
    return staged


def published(standalone: StandaloneProcess, topic: str) -> Counter[str]:
    source = PulsarDataSource({"service.url": standalone.service_url, "topic": topic})
    reader = source.reader(source.schema())
    found: Counter[str] = Counter()
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found.update(value.decode() for value in batch.column("value").to_pylist())
    return found


@pytest.mark.feature("F-SPK-06")
@pytest.mark.parametrize("point", POINTS)
def test_a_replay_after_a_crash_writes_everything_once(
    standalone: StandaloneProcess, topic: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_batch(standalone, topic, 0, seed=1)
    with monkeypatch.context() as patch:
        POINTS[point](patch)
        with pytest.raises(Crash):
            run_batch(standalone, topic, 1, seed=2)
    run_batch(standalone, topic, 1, seed=3)
    run_batch(standalone, topic, 1, seed=4)
    run_batch(standalone, topic, 2, seed=5)
    with pytest.raises(DamagedRecord):
        run_batch(standalone, topic, 0, seed=6)
    assert published(standalone, topic) == Counter(f"{batch}-{number}" for batch in range(3) for number in range(200))
