# SPDX-License-Identifier: Apache-2.0
"""The data source with places where a process ends: `pulsar-crashing`, for tests that kill a driver or a worker there.

A file says where and whom (`{"point": "decided", "whom": "driver"}`); the first process that comes to that place takes
the file away and kills, or stops the driver for `resume` to let it go on. Workers import this module to know the class,
so that they have the places too.
"""

import contextlib
import inspect
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from magnetar.spark import committer, publisher, range_reader, sink_log, staging, stream_reader, stream_writer
from magnetar.spark.source import PulsarDataSource

FILE = "MAGNETAR_TEST_CRASH_FILE"
DRIVER = "MAGNETAR_TEST_CRASH_DRIVER"
STOPPED = "stopped.json"
"""Beside the crash file: the groups of processes that were told to stop."""
_STOP_S = 5


class CrashingDataSource(PulsarDataSource):
    @classmethod
    def name(cls) -> str:
        return "pulsar-crashing"


def reached(point: str) -> None:
    """Kill whom the file names, if it names this place."""
    path = Path(os.environ.get(FILE, "/nowhere"))
    try:
        wanted = json.loads(path.read_text())
        if wanted["point"] != point:
            return
        path.unlink()
    except (OSError, ValueError):
        return
    if wanted["whom"] == "driver":
        # The driver and its JVM are one group of processes, Python's daemon and its workers another.
        os.killpg(int(os.environ[DRIVER]), signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)
    if wanted["whom"] == "driver-stops":
        stopped = [int(os.environ[DRIVER]), os.getpgid(0)]
        telling = path.with_name("stopping.json")
        telling.write_text(json.dumps(stopped))
        telling.replace(path.with_name(STOPPED))
        for group in stopped:
            os.killpg(group, signal.SIGSTOP)
        # Another thread may be the one that takes the signal; until then this one would go on.
        threading.Event().wait(_STOP_S)
        return
    if wanted["whom"] == "executor":
        # The worker is a child of Python's daemon, which is a child of the executor.
        executor = psutil.Process().parents()[1]
        assert executor.name() == "java", executor
        executor.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def are_stopped(groups: list[int]) -> bool:
    """Whether every process of them stands still, and comes to no place any more."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) in groups:
                found.append(process.status())
    return bool(found) and all(status in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE) for status in found)


def resume(groups: list[int], number: int = signal.SIGCONT) -> None:
    """A driver that was stopped goes on, with its workers; or gets another signal."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)


def _around(owner: Any, name: str, before: str | None, after: str | None, turn: int = 1) -> None:
    step: Callable[..., Any] = getattr(owner, name)
    calls = 0

    async def awaited(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= turn and before is not None:
            reached(before)
        found = await step(*given, **more)
        if calls >= turn and after is not None:
            reached(after)
        return found

    def called(*given: Any, **more: Any) -> Any:
        if before is not None:
            reached(before)
        found = step(*given, **more)
        if after is not None:
            reached(after)
        return found

    setattr(owner, name, awaited if inspect.iscoroutinefunction(step) else called)


def _between_batches(owner: Any, name: str, point: str) -> None:
    step: Callable[..., Iterator[Any]] = getattr(owner, name)

    def stepping(*given: Any) -> Iterator[Any]:
        for one in step(*given):
            yield one
            reached(point)

    setattr(owner, name, stepping)


def _between_staged_batches() -> None:
    staged = publisher.Publisher._staged

    async def stepping(self: publisher.Publisher, manifest: Any) -> Any:
        count = 0
        async for batch in staged(self, manifest):
            if count == 1:
                for producer in self._producers.values():
                    await producer.flush()
                reached("in-the-middle")
            count += 1
            yield batch

    publisher.Publisher._staged = stepping  # type: ignore[method-assign]


_around(stream_reader.PulsarStreamReader, "latestOffset", "offsets-asked", "offsets-known")
_around(stream_reader.PulsarStreamReader, "partitions", None, "planned")
_around(stream_reader.PulsarStreamReader, "commit", "source-committing", "source-committed")
_between_batches(range_reader.RangeReader, "batches", "reading")
_around(staging.StagingAttempt, "append", None, "staging")
_around(staging.StagingAttempt, "finish", None, "staged")
_around(sink_log.SinkLog, "open", "log-not-open", "log-open")
_around(sink_log.SinkLog, "write", "not-decided", "decided")
_between_staged_batches()
_around(publisher.Publisher, "publish", None, "published")
_around(sink_log.SinkLog, "trim", "done", "log-trimmed")
_around(committer, "move", None, "staging-trimmed")
_around(stream_writer.PulsarStreamWriter, "commit", "committing", "committed")

DRIVER_POINTS = {
    "source": ("offsets-asked", "offsets-known", "planned", "reading", "staging", "staged"),
    "decision": ("committing", "log-not-open", "log-open", "not-decided", "decided", "in-the-middle"),
    "end": ("published", "done", "log-trimmed", "staging-trimmed", "committed"),
}
"""The places in the order of a micro-batch, by what it does there."""
