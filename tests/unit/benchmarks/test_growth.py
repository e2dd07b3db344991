# SPDX-License-Identifier: Apache-2.0
"""How long a server is watched for what it does when nothing is to be done."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
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

    monkeypatch.setattr(growth, "KINDS", (("thing", of_nothing, (5, 5, 5), "≤ 20 KB"),))
    monkeypatch.setattr(growth, "time", SimpleNamespace(sleep=lambda seconds: None))
    memory_mb = iter([50.0, 60.0, 55.0])
    done: list[str] = []

    def pss_mb(pid: int) -> float:
        done.append("weighed")
        return next(memory_mb)

    monkeypatch.setattr(growth, "pss_mb", pss_mb)
    cpu_s = count(1.0)
    monkeypatch.setattr(growth, "cpu_s", lambda pid: next(cpu_s))
    monkeypatch.setattr(growth, "publish", lambda *args, **options: done.append("written to"))
    monkeypatch.setattr(growth, "until_settled", lambda pid: done.append("settled"))
    monkeypatch.setattr(growth, "busy_percent", busy_percent)
    peer = SimpleNamespace(server=lambda directory: nullcontext(SimpleNamespace(pid=1, service_url="")))
    found = growth.slopes(cast("Peer", peer), tmp_path, Scale(scale))
    assert watched == [seconds]
    assert done == ["written to", "settled", "weighed", "weighed", "weighed", "settled"], (
        "what a start leaves is no part of it"
    )
    assert found[0].value == 0.0, "memory that was given back meanwhile is no negative weight"
    assert found[0].aim == "", "nor is an aim reached by it"
    assert not any("memory of the second half" in each.name for each in found)
    assert found[-1].settings == f"over {seconds} s"


@pytest.mark.parametrize(
    ("memory_mb", "told"),
    [
        ([50.0, 60.0, 70.0], [1.0]),
        ([50.0, 60.0, 90.0], [3.0]),
        # The first half took what the server had let go of: it says nothing of the second.
        ([50.0, 50.1, 52.1], []),
        ([50.0, 60.0, 55.0], []),
        ([50.0, 45.0, 55.0], []),
        ([50.0, 50.2, 50.3], []),
    ],
)
def test_the_memory_of_two_halves_is_compared_where_it_can_be_told(memory_mb: list[float], told: list[float]) -> None:
    found = growth.memory_of_halves("memory", memory_mb, "5 after 5")
    assert [each.value for each in found] == pytest.approx(told)
    assert all((each.aim, each.unit) == ("≤ 1.5", "times") for each in found)
    assert all(each.settings.startswith("5 after 5; ") for each in found), "how many, and what they weighed"
