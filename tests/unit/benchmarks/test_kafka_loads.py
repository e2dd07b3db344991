# SPDX-License-Identifier: Apache-2.0
"""What Kafka's generators print becomes figures that stand beside ours."""

from typing import cast

import pytest

from benchmarks import kafka_loads
from benchmarks.__main__ import LOADS
from benchmarks.figures import Scale
from benchmarks.kafka_loads import FRESH, SHARED, Produced, consumed, produced
from benchmarks.kafka_peer import KafkaServer

PRODUCED = """101 records sent, 20.2 records/sec (0.02 MB/sec), 12.0 ms avg latency, 30.0 ms max latency.
5000 records sent, 998.801438 records/sec (0.98 MB/sec), 4.48 ms avg latency, 321.00 ms max latency, \
3 ms 50th, 5 ms 95th, 41 ms 99th, 77 ms 99.9th.
"""
CONSUMED = """start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, \
fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-16 12:00:00:000, 2026-11-16 12:00:04:000, 19.5, 4.9, 20000, 5000.0, 3600, 400, 48.8, 50000.0
"""


def test_the_last_line_of_a_producer_is_read() -> None:
    assert produced(PRODUCED) == Produced(998.801438, 321.0, 3.0, 41.0, 77.0)


def test_the_time_in_which_a_group_forms_is_left_out() -> None:
    assert consumed(CONSUMED) == 50_000.0


@pytest.mark.parametrize("read", [produced, consumed])
def test_a_generator_that_measured_nothing_says_so(read: object) -> None:
    assert callable(read)
    with pytest.raises(ConnectionError, match="measured nothing"):
        read("Exception in thread main")


def test_a_consumer_that_got_nothing_measured_nothing() -> None:
    with pytest.raises(ConnectionError, match="measured nothing"):
        consumed(CONSUMED.replace("50000.0", "-0.0000"))


def test_every_load_of_kafka_stands_beside_one_of_ours() -> None:
    assert (SHARED.keys() | FRESH.keys()) <= {load.name for load in LOADS}


def test_latencies_of_its_generator_are_said_to_be_counted_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_loads, "_producer", lambda *_, **__: [])
    monkeypatch.setattr(kafka_loads, "_said", lambda command: PRODUCED)
    found = kafka_loads.fixed_rates(cast("KafkaServer", None), Scale("quick"))
    assert len(found) == 12
    assert {figure.unlike for figure in found} == {"counted from each send call, in whole milliseconds"}
