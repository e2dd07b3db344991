# SPDX-License-Identifier: Apache-2.0
"""How long a server is watched for what it does when nothing is to be done."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import growth
from benchmarks.figures import Scale
from benchmarks.servers import Peer


@contextmanager
def of_nothing(server: object, total: int) -> Iterator[Any]:
    yield lambda number: None


@pytest.mark.parametrize(("scale", "seconds"), [("quick", 1), ("usual", 10), ("full", 60)])
def test_idleness_is_watched_for_long_enough_that_a_checkpoint_a_minute_is_not_most_of_it(
    scale: str, seconds: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    watched: list[float] = []

    def busy_percent(pid: int, seconds: float) -> float:
        watched.append(seconds)
        return 0.3

    monkeypatch.setattr(growth, "KINDS", (("thing", of_nothing, (5, 5, 5), ""),))
    monkeypatch.setattr(growth, "time", SimpleNamespace(sleep=lambda seconds: None))
    memory_mb = iter([50.0, 60.0, 55.0])
    monkeypatch.setattr(growth, "pss_mb", lambda pid: next(memory_mb))
    for name in ("cpu_s", "until_settled"):
        monkeypatch.setattr(growth, name, lambda pid: 0.0)
    monkeypatch.setattr(growth, "busy_percent", busy_percent)
    peer = SimpleNamespace(server=lambda directory: nullcontext(SimpleNamespace(pid=1)))
    found = growth.slopes(cast("Peer", peer), tmp_path, Scale(scale))
    assert watched == [seconds]
    assert found[0].value == 0.0, "memory that was given back meanwhile is no negative weight"
    assert found[-1].settings == f"over {seconds} s"
