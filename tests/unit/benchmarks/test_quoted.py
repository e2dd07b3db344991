# SPDX-License-Identifier: Apache-2.0
"""What is quoted stands beside what was measured."""

from pathlib import Path

import pytest

from benchmarks import latency, publishing, quoted, topics
from benchmarks.figures import TEN_THOUSANDTHS, Figure, Scale, latency_figures
from benchmarks.raw_paced import Latencies
from benchmarks.servers import MagnetarServer


def test_a_number_of_a_measured_row_stands_beside_what_is_quoted() -> None:
    lines = quoted.table([{"name": "publish to 1 partition", "number": 412.4, "unit": "MB/s"}])
    (found,) = [line for line in lines if line.startswith("| throughput, 1 partition ")]
    assert "| 700 MB/s without a journal, 580 with one (Kafka: 280) | 412 MB/s |" in found
    (missing,) = [line for line in lines if line.startswith("| throughput, 100 partitions ")]
    assert "| – |" in missing
    assert quoted.table([{"name": "another", "number": 1.0, "unit": "s"}]) == []


def test_rows_that_are_named_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A row that is called otherwise one day would leave its place empty and say nothing."""
    server, scale = MagnetarServer(tmp_path), Scale("quick")
    taken = Latencies([1.0] * TEN_THOUSANDTHS)
    monkeypatch.setattr(latency, "at_rate", lambda *_, **__: taken)
    monkeypatch.setattr(publishing, "_at_full_speed", lambda *_: (1.0, 1.0))
    monkeypatch.setattr(topics, "partitioned", lambda *_: [])
    found: list[Figure] = latency.fixed_rates(server, scale)
    found += [*publishing.raw(server, scale), *publishing.partitions(server, scale)]
    names = {figure.name for figure in found} | {"producer, as it comes (batched)"}
    assert {each.row for each in quoted.QUOTED} <= names


def test_p9999_needs_values_enough() -> None:
    few, enough = (latency_figures("x", [1.0] * count) for count in (TEN_THOUSANDTHS - 1, TEN_THOUSANDTHS))
    assert [figure.name for figure in few] == ["x, p50", "x, p99", "x, p99.9", "x, max"]
    assert [figure.name for figure in enough] == ["x, p50", "x, p99", "x, p99.9", "x, p99.99", "x, max"]
