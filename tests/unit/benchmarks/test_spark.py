# SPDX-License-Identifier: Apache-2.0
"""What Spark leaves behind: settings in each row, one file for all of it, aims that are judged beside Kafka."""

import argparse
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="`make setup-all` installs Spark")

from benchmarks import spark_throttle
from benchmarks.aims import judge_of
from benchmarks.results import Run, Side, last_measured
from benchmarks.spark import Load, Taken, figures, scale_words


def test_a_row_says_how_many_rows_were_read_and_each_round_of_it() -> None:
    taken = [Taken(seconds, 1.0) for seconds in (1.0, 2.0, 4.0)]
    rate, cpu = figures("a read", Load("a read", lambda: None, settings="delivery=once", share=2), taken, 2_000_000)
    assert (rate.value, rate.rounds) == (500_000.0, (1_000_000.0, 500_000.0, 250_000.0))
    assert rate.settings == cpu.settings == "1,000,000 rows, local[2]; median of 3; delivery=once"
    assert scale_words(1_000_000) == "1,000,000 messages, local[2]"
    assert scale_words(200_000) == "quick, 200,000 messages, local[2]"


def test_throttling_stays_beside_what_was_read_and_answers_its_row(tmp_path: Path) -> None:
    reads = Run("spark", "2 cores", scale_words(1_000_000), [Side("magnetar", ""), Side("kafka", "")], tmp_path)
    load = Load("a read", lambda: None)
    ours, theirs = ([Taken(seconds, 1.0)] for seconds in (2.0, 1.0))
    sides = {"magnetar": figures("a read", load, ours, 10), "kafka": figures("a read", load, theirs, 10)}
    reads.add("spark", sides, 0.0, "a read", 1)
    reads.write()
    beside = Run("spark", "2 cores", scale_words(1_000_000), [Side("magnetar", "")], tmp_path)
    beside.keep_earlier()
    arguments = argparse.Namespace(seconds=10.0, turns=3, messages=500_000, rate=1_000)
    assert spark_throttle.scale_words(arguments) == "500,000 messages, local[2]"
    short = argparse.Namespace(**{**vars(arguments), "seconds": 2.0})
    assert spark_throttle.scale_words(short).startswith("quick, ")
    turns = [(1.0, 9.0, 2.5), (1.0, 9.0, 2.5), (1.0, 9.0, 2.5)]
    beside.add("spark", {"magnetar": spark_throttle.figures(turns, arguments)}, 0.0, "throttle", 3)
    beside.write()
    document = last_measured("spark", (tmp_path,))
    assert document is not None
    judge = judge_of(document)
    assert {row["name"]: judge(row) for row in document["rows"] if row["aim"]} == {
        "a read": "floor",
        "publish p99 beside a limited query, times": "missed",
    }
    assert [row["answers"] for row in document["rows"] if row["answers"]] == [["F-SQL-05"]]
