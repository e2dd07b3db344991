# SPDX-License-Identifier: Apache-2.0
"""Variants that take turns: who begins, what counts, and what is said of the turns beside their median."""

import pytest

from benchmarks.aims import MISSED, REACHED, judged
from benchmarks.figures import LESS, MORE, Figure, Scale
from benchmarks.turns import Turns, in_turns, order, turns_of


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 10])
@pytest.mark.parametrize("turns", [3, 5])
def test_no_variant_is_always_the_first_and_each_is_in_every_turn(count: int, turns: int) -> None:
    variants = [*range(count)]
    orders = [order(variants, turn, turns) for turn in range(turns)]
    assert all(sorted(each) == variants for each in orders)
    assert len({each[0] for each in orders}) == min(count, turns)
    for variant in variants:
        assert len({each.index(variant) for each in orders}) > 1


def test_what_warms_up_counts_not_and_comes_before_every_turn() -> None:
    done: list[tuple[str, int]] = []

    def measured(variant: str, turn: int) -> dict[str, float]:
        done.append((variant, turn))
        return {"rate": 10.0 * turn + len(done)}

    taken = in_turns(["one", "other"], 3, measured, lambda variant: done.append((variant, -1)))
    assert done == [
        ("one", -1),
        ("other", -1),
        ("one", 0),
        ("other", 0),
        ("other", 1),
        ("one", 1),
        ("one", 2),
        ("other", 2),
    ]
    assert taken.values("one", "rate") == [3.0, 16.0, 27.0]
    assert taken.values("other", "rate") == [4.0, 15.0, 28.0]


def test_a_figure_is_the_median_and_its_settings_say_between_what_the_turns_were() -> None:
    taken = Turns({"slow": [{"rate": 900.0}, {"rate": 1_500.0}, {"rate": 1_000.0}]})
    assert taken.figure("slow", "rate", "a row", "msg/s", MORE, "1 KiB", ("F-TUN-01",)) == Figure(
        "a row", 1_000.0, "msg/s", MORE, "", "1 KiB; median of 3 turns, 900 to 1,500 msg/s", ("F-TUN-01",)
    )
    once = Turns({"slow": [{"rate": 900.0}]})
    assert once.figure("slow", "rate", "a row", "msg/s").settings == "one turn"


def test_a_ratio_is_that_of_the_medians_between_those_of_turns_beside_each_other() -> None:
    taken = Turns({4: [{"rate": 8.0}, {"rate": 6.0}, {"rate": 9.0}], 1: [{"rate": 10.0}, {"rate": 4.0}, {"rate": 9.0}]})
    ratio = taken.ratio(4, 1, "rate", "  4 against 1", MORE, "one disk", ("F-BKS-05",), "≥ 2")
    assert ratio.value == pytest.approx(8 / 9)
    assert ratio.settings == "one disk; of the medians of 3 turns, in single ones 0.80 to 1.50 times"
    assert (ratio.unit, ratio.aim, ratio.features) == ("times", "≥ 2", ("F-BKS-05",))


def test_the_aims_of_knobs_are_judged_by_the_number_itself() -> None:
    def verdict(aim: str, number: float, better: str) -> str | None:
        return judged({"aim": aim, "number": number, "unit": "times", "better": better, "unlike": [], "peers": {}})

    assert (verdict("≥ 2", 0.85, MORE), verdict("≥ 2", 2.1, MORE)) == (MISSED, REACHED)
    assert (verdict("≤ 1", 1.42, LESS), verdict("≤ 1", 0.14, LESS)) == (MISSED, REACHED)


def test_a_quick_run_has_one_turn_and_the_others_several() -> None:
    assert [turns_of(Scale(name)) for name in ("quick", "usual", "full")] == [1, 3, 5]
