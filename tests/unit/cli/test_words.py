# SPDX-License-Identifier: Apache-2.0
"""Words become what commands are given; those that do not fit are told what they should be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.cli.pace import Latencies, Pace
from magnetar.cli.perf import topics_of
from magnetar.cli.values import (
    WrongUse,
    bytes_of,
    instant_of,
    message_id_of,
    millis_of,
    pairs_of,
    seconds_of,
)
from magnetar.cli.words import Command, Kind, flag

COMMAND = Command(
    "try",
    "Try it.",
    ("topic", "more?"),
    (
        flag("--enable -e", Kind.SWITCH, "On."),
        flag("--earliest -etb", Kind.SWITCH, "Early."),
        flag("--keep -k", Kind.SWITCH_OFF, "Not kept."),
        flag("--time -t", Kind.SECONDS, "How long.", default=5),
        flag("--names -n", Kind.TEXTS, "Names."),
        flag("--property -p", Kind.PAIRS, "Pairs.", default={}),
        flag("--mode", Kind.TEXT, "How.", choices="ALL SOME"),
    ),
)


def test_flags_stand_anywhere_and_in_any_form() -> None:
    read = COMMAND.read(
        ["-etb", "t", "--time=3h", "-n", "a,b", "-n", "c", "-p", "x=1", "--property", "y=2", "--mode", "all"]
    )
    assert (read["topic"], read["more"], read["earliest"], read["enable"]) == ("t", None, True, False)
    assert (read["time"], read["names"], read["property"]) == (10_800, ["a", "b", "c"], {"x": "1", "y": "2"})
    assert (read["mode"], read["keep"]) == ("ALL", True)
    assert COMMAND.read(["t", "-k"])["keep"] is False
    assert COMMAND.read(["t", "--time", "-1"])["time"] == -1
    assert COMMAND.read(["--", "-t"])["topic"] == "-t"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "try needs TOPIC"),
        ("a b c", "try does not take 'c'"),
        ("t --tmie 3", "there is no flag --tmie; did you mean --time"),
        ("t --time", "--time needs a value: TIME"),
        ("t --time soon", "--time: 'soon' should be a time"),
        ("t --mode none", "--mode: 'none' should be one of ALL, SOME"),
        ("t -p x", "--property: 'x' should be name=value"),
    ],
)
def test_wrong_words_are_told_what_they_should_be(words: str, sentence: str) -> None:
    with pytest.raises(WrongUse, match=sentence.replace("?", "")):
        COMMAND.read(words.split())


def test_sizes_times_and_ids() -> None:
    assert [bytes_of(text) for text in ("7", "2k", "2K", "10M", "1G", "1T", "-1")] == [
        7,
        2048,
        2048,
        10 << 20,
        1 << 30,
        1 << 40,
        -1,
    ]
    assert [seconds_of(text) for text in ("7", "7s", "2m", "3h", "1d", "1w")] == [7, 7, 120, 10_800, 86_400, 604_800]
    assert millis_of("2s") == 2000
    assert instant_of("1970-01-01T00:00:01.500Z") == 1500
    assert message_id_of("3:4")["entryId"] == 4
    assert message_id_of("earliest")["ledgerId"] == -1
    assert pairs_of("a=b,c=d=e") == {"a": "b", "c": "d=e"}
    for text in ("x", "1:", "10X"):
        with pytest.raises(WrongUse):
            message_id_of(text)


def test_a_schedule_does_not_wait_for_whoever_is_late() -> None:
    pace = Pace(10, 100.0)
    assert [pace.next_due_s(103.0) for _ in range(3)] == pytest.approx([100.0, 100.1, 100.2])
    assert Pace(0, 100.0).next_due_s(103.0) == 103.0


@given(st.lists(st.integers(0, 10**8), min_size=1, max_size=200), st.sampled_from([50.0, 95.0, 99.0, 99.9, 100.0]))
def test_percentiles_are_those_of_the_sorted_list(values: list[int], percent: float) -> None:
    latencies, parts = Latencies(), (Latencies(), Latencies())
    for place, value in enumerate(values):
        latencies.add(value)
        parts[place % 2].add(value)
    wanted = len(values) * percent / 100
    exact = next(value for place, value in enumerate(sorted(values), 1) if place >= wanted)
    assert exact <= latencies.percentile_us(percent) <= exact * 1.008 + 1
    parts[0].merge(parts[1])
    assert parts[0].percentile_us(percent) == latencies.percentile_us(percent)
    assert latencies.max_us == max(values)


def test_topics_of_a_load_test_are_numbered() -> None:
    assert topics_of({"topics": ["t"], "num_topics": 3, "separator": "_"}) == ["t_0", "t_1", "t_2"]
    assert topics_of({"topics": ["a", "b"], "num_topics": 2}) == ["a", "b"]
    with pytest.raises(WrongUse):
        topics_of({"topics": ["a", "b"], "num_topics": 3})
