# SPDX-License-Identifier: Apache-2.0
"""What latencies are compared with: over few and many topics in turns, and beside a reader of what is long written."""

import multiprocessing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import latency
from benchmarks.figures import Figure, Scale
from benchmarks.raw_paced import Latencies
from benchmarks.servers import Server


class Connection:
    def __init__(self) -> None:
        self.pings_answered = 0
        self.is_closed = False

    def answer_pings(self) -> None:
        self.pings_answered += 1

    def close(self) -> None:
        self.is_closed = True


def test_ten_thousand_topics_take_turns_with_few_on_producers_that_are_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: dict[int, Connection] = {}
    driven: list[tuple[int, int]] = []

    def connected(url: str, shares: list[list[str]]) -> list[Connection]:
        (names,) = shares
        assert len(set(names)) == len(names) not in made
        made[len(names)] = Connection()
        return [made[len(names)]]

    def paced_on(connections: dict[int, Connection], count: int, *, rate: float, messages: int) -> list[float]:
        assert connections == made
        driven.append((count, messages))
        return [float(count)] * messages

    monkeypatch.setattr(latency, "connected", connected)
    monkeypatch.setattr(latency, "_paced_on", paced_on)
    monkeypatch.setattr(latency, "ask_for_short_turns", lambda: None)
    found = latency.few_and_many_topics(cast("Server", SimpleNamespace(service_url="")), Scale("usual"))
    assert list(made) == [10_000, 100, 10], "those that take long come first: nobody answers pings meanwhile"
    assert driven[:3] == [(10, 10), (100, 100), (10_000, 10_000)], "each topic is published to before"
    assert [count for count, _ in driven[3:]] == [10, 100, 10_000] * 3
    assert all(messages >= 10_000 for _, messages in driven[3:]), "each topic has its share"
    assert all(connection.is_closed for connection in made.values())
    tagged = {feature: figure.value for figure in found for feature in figure.features}
    assert tagged == {"F-PLAT-07": 100.0, "F-PRB-14": 1_000.0}


def test_connections_that_rest_answer_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = {10: Connection(), 20: Connection()}
    kept_open: list[bool] = []
    monkeypatch.setattr(latency, "Paced", lambda *given, **more: SimpleNamespace(latencies=Latencies([1.0])))
    monkeypatch.setattr(latency, "drive", lambda *given, keeps_open: kept_open.append(keeps_open))
    assert latency._paced_on(cast("Any", connections), 10, rate=1.0, messages=1) == [1.0]
    assert [connection.pings_answered for connection in connections.values()] == [1, 1]
    assert kept_open == [True]


@pytest.mark.parametrize(("hits", "share"), [((5.0, 103.0), 98.0), ((5.0, 107.0), 100.0), (None, None)])
def test_tail_reads_are_counted_beside_a_full_scan(
    hits: tuple[float, float] | None, share: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([{latency.TAIL_HITS: each} for each in hits] if hits else [{}, {}])
    monkeypatch.setattr(latency, "scraped", lambda url: next(counts))
    monkeypatch.setattr(latency, "publish", lambda *given, **more: None)
    monkeypatch.setattr(latency, "at_rate", lambda *given, **more: Latencies([1.0] * 100, [2.0] * 100))
    monkeypatch.setattr(latency, "_scan", lambda *given: None)
    monkeypatch.setattr(latency, "FORK", multiprocessing.get_context("fork"))
    found = latency.beside_a_reader(cast("Server", SimpleNamespace(service_url="", web_url="")), Scale("quick"))
    tagged: dict[str, Figure] = {figure.features[-1]: figure for figure in found if figure.features}
    if share is None:
        assert "F-BKS-31" not in tagged, "a peer has no such count"
    else:
        row = tagged["F-BKS-31"]
        assert (row.value, row.unit, row.better, row.aim) == (share, "%", "more", "≥ 99 %")
    assert tagged["F-PRB-14"].name == "tail read p99, times"
