# SPDX-License-Identifier: Apache-2.0
"""Where floors and aims are drawn, and that each kind of measurement has its picture."""

import math
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.aims import judge_of, judged, marks
from benchmarks.plots import PANELS, Panel, draw, newest, rows_in
from benchmarks.report import PLOTS


def row(group: str, name: str, number: float, unit: str, **more: Any) -> dict[str, Any]:
    plain = {
        "group": group,
        "name": name,
        "number": number,
        "unit": unit,
        "better": "more",
        "aim": "",
        "run": "2026-01",
    }
    return {**plain, "peers": {}, "rounds": {}, "unlike": [], **more}


@pytest.mark.parametrize(
    ("aim", "unit", "found"),
    [
        ("0.5× → 2×", "msg/s", (50.0, 200.0)),
        ("≤ 120 MB", "MB", (None, 120.0)),
        ("1 % → 0.3 %", "% of a core", (1.0, 0.3)),
        ("1 %", "% of a core", (None, 1.0)),
        ("≤ 2 times", "ms", (None, None)),
        ("≤ 1.5", "times", (None, 1.5)),
        ("≤ 1.1", "", (None, 1.1)),
        ("≤ 1.1", "ms", (None, None)),
        ("≥ 99 %", "%", (None, 99.0)),
        ("", "s", (None, None)),
    ],
)
def test_a_floor_and_an_aim_lie_where_they_are_in_the_rows_unit(
    aim: str, unit: str, found: tuple[float | None, float | None]
) -> None:
    assert marks(row("publish", "rate", 1.0, unit, aim=aim, peers={"pulsar": 100.0})) == found


@pytest.mark.parametrize(
    ("aim", "better", "numbers"),
    [
        ("0.5× → 0.3×", "less", {20.0: "aim", 30.0: "aim", 40.0: "floor", 51.0: "missed"}),
        ("1× → 2×", "more", {200.0: "aim", 150.0: "floor", 99.0: "missed"}),
        ("≤ 120 ms", "less", {120.0: "aim", 121.0: "missed", math.nan: None}),
        ("≥ 99 ms", "more", {99.0: "aim", 98.9: "missed"}),
        ("", "less", {1.0: None}),
    ],
)
def test_a_number_is_judged_by_its_floor_and_its_aim(aim: str, better: str, numbers: dict[float, str | None]) -> None:
    for number, found in numbers.items():
        assert judged(row("latency", "p99", number, "ms", aim=aim, better=better, peers={"pulsar": 100.0})) == found


def test_a_ratio_is_one_to_pulsar_or_to_the_only_other_side() -> None:
    compared = row("publish", "rate", 3.0, "msg/s", aim="1× → 2×", peers={"kafka": 1.0})
    runs = [{"began": "2026-01", "scale": "usual"}]
    among = {"sides": ["magnetar", "pulsar", "kafka"], "runs": runs}
    alone = {"sides": ["magnetar", "kafka"], "runs": runs}
    assert marks(compared) == (None, None)
    assert judge_of(among)(compared) is None
    assert marks(compared, "kafka") == (1.0, 2.0)
    assert judge_of(alone)(compared) == "aim"
    assert judge_of(alone)({**compared, "unlike": ["kafka"]}) is None, "another clock"


@pytest.mark.parametrize(("scale", "found"), [("quick", None), ("quick, 200 messages", None), ("usual", "missed")])
def test_what_was_measured_at_quick_scale_is_not_judged(scale: str, found: str | None) -> None:
    judge = judge_of({"sides": ["magnetar"], "runs": [{"began": "2026-01", "scale": scale}]})
    assert judge(row("start and memory", "idle CPU", 5.0, "% of a core", aim="1 %", better="less")) == found


def test_a_panel_has_the_rows_of_its_groups_and_unit() -> None:
    rows = [row("b", "two", 1.0, "s"), row("a", "one", 1.0, "s"), row("a", "one", 1.0, "MB"), row("c", "one", 1.0, "s")]
    found = rows_in(Panel("", ("a", "b"), "s", lambda name: name != "nothing"), {"rows": rows})
    assert found == [rows[1], rows[0]]


def test_every_picture_of_the_page_is_drawn_and_none_of_what_was_not_measured(tmp_path: Path) -> None:
    if find_spec("matplotlib") is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("what draws plots is not installed: `make .venv/.bench` installs it")
    assert list(PANELS) == list(PLOTS)
    rows = [
        row(panel.groups[0], f"{what} {number}", number, panel.unit, aim="1× → 2×")
        for what in ("memory", "on disk")
        for panels in PANELS.values()
        for panel in panels
        for number in (0.0, 3.0)
    ]
    rows += [row("latency", "lag", 2.0, "ms", peers={"kafka": 4.0, "pulsar": 1.0}, unlike=["kafka"], aim="1× → 2×")]
    rows[0]["rounds"] = {"magnetar": [1.0, 0.0]}
    document = {
        "sides": ["magnetar", "pulsar", "kafka"],
        "runs": [{"began": "2026-01", "scale": "usual"}],
        "rows": rows,
    }
    assert [path.stem for path in draw([document], tmp_path)] == list(PLOTS)
    assert [path.stem for path in draw([document | {"rows": rows[:1]}], tmp_path)] == ["publish"]
    assert [path.name for path in tmp_path.iterdir()] == ["publish.png"]


def test_each_picture_is_of_the_run_that_measured_it_last() -> None:
    kept = {"rows": [row("publish", "rate", 1.0, "msg/s"), row("latency", "lag", 1.0, "ms")]}
    made_here = {"rows": [row("publish", "rate", 2.0, "msg/s", run="2026-02")]}
    assert newest(PANELS["publish"], [kept, made_here]) is made_here
    assert newest(PANELS["publish"], [made_here, kept]) is made_here
    assert newest(PANELS["latency"], [kept, made_here]) is kept
    assert newest(PANELS["spark"], [kept, made_here]) is None
