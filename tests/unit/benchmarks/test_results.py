# SPDX-License-Identifier: Apache-2.0
"""What a run leaves behind: rows beside their peers, catalogue rows put together, a page that keeps its words."""

import json
from pathlib import Path

from benchmarks.__main__ import LOADS, medians
from benchmarks.figures import LESS, Figure, Scale, percentile, shown
from benchmarks.report import BEGIN, END, markdown, page, rows_of, verdict
from benchmarks.results import Run, Side, ratio_words, spread
from tools.feature_record import catalogue
from tools.features import measurements


def a_run(directory: Path) -> Run:
    run = Run("peers", "2 cores", "quick", [Side("magnetar", "ours"), Side("other", "theirs")], directory)
    ours = [
        Figure("publish", 200.0, "msg/s", aim="1× → 2×", features=("F-PLAT-14",)),
        Figure("publish, p99", 3.0, "ms", LESS, features=("F-PLAT-14",)),
        Figure("only ours", 1.5, "s", LESS),
    ]
    theirs = [Figure("publish", 100.0, "msg/s"), Figure("publish, p99", 6.0, "ms", LESS)]
    run.add("publish", {"magnetar": ours, "other": theirs}, 12.34)
    return run


def test_the_catalogue_reads_one_answer_made_of_all_rows(tmp_path: Path) -> None:
    a_run(tmp_path / "bench").write()
    assert measurements(tmp_path)["F-PLAT-14"].value == "publish: 200 msg/s; publish, p99: 3 ms"


def test_a_row_has_its_peer_its_ratio_its_versions_and_settings(tmp_path: Path) -> None:
    first, second, third, *_ = a_run(tmp_path).document()
    assert (first["peers"], first["ratios"]) == ({"other": 100.0}, {"other": 2.0})
    assert first["versions"] == {"magnetar": "ours", "other": "theirs"}
    assert first["load_average"] == 12.3
    assert second["ratios"] == {"other": 0.5}
    assert (third["peers"], third["ratios"]) == ({}, {})


def test_a_ratio_says_what_it_was_in_single_rounds(tmp_path: Path) -> None:
    run = Run("peers", "2 cores", "quick", [Side("magnetar", "ours"), Side("other", "theirs")], tmp_path)
    ours = medians([[Figure("p99.9", value, "ms", LESS)] for value in (1.0, 6.0, 2.0)])
    theirs = medians([[Figure("p99.9", value, "ms", LESS)] for value in (4.0, 3.0, 5.0)])
    run.add("latency", {"magnetar": ours, "other": theirs}, 0.0)
    row, _ = run.document()
    assert (row["number"], row["peers"], row["ratios"]) == (2.0, {"other": 4.0}, {"other": 0.5})
    assert row["spreads"] == {"other": (0.25, 2.0)}
    assert ratio_words(row, "other") == "0.50, 0.25 to 2.00"
    assert "0.50× (better; 0.25 to 2.00)" in markdown("peers", run.document())
    assert spread(ours[0], medians([[Figure("p99.9", 4.0, "ms", LESS)]])[0]) is None, "other rounds"


def test_a_load_that_failed_on_one_side_leaves_the_others_rows(tmp_path: Path) -> None:
    run = Run("peers", "2 cores", "quick", [Side("magnetar", "ours"), Side("other", "theirs")], tmp_path)
    run.add("publish", {"magnetar": [Figure("publish", 1.0, "s")]}, 0.0)
    run.add("publish", {"other": [Figure("publish", 1.0, "s")]}, 0.0)
    assert [row["name"] for row in run.document() if "name" in row] == ["publish"]


def test_the_page_keeps_what_stands_around_the_marks(tmp_path: Path) -> None:
    document = json.loads(json.dumps(a_run(tmp_path).document()))
    once = page(f"# Words\n\n{BEGIN}\nold\n{END}\n\nmore words\n", {"peers": document})
    assert once.startswith("# Words\n")
    assert once.endswith("more words\n")
    assert "old" not in once
    assert page(once, {"peers": document}) == once
    assert "| publish | 200 msg/s | 100 msg/s | 2.00× (better) | 1× → 2× |" in once
    assert "| only ours | 1.50 s | – | – |" in markdown("peers", document)
    groups = [row["group"] for row in rows_of([*document, *document])[0]]
    assert groups == sorted(groups, key=groups.index), "each group stands together"
    # A run that was not made here stays as it stands, and one that was takes its own place only.
    spark = "### Topics in Spark\n\n- begun long ago\n\n#### Spark\n\n| rows | 7 |"
    both = page(once.replace(END, f"{spark}\n\n{END}"), {"peers": document})
    assert spark in both
    assert both.replace(f"{spark}\n\n", "") == once
    assert page(both, {"spark": document}).count("### Beside Apache Pulsar") == 1
    assert "long ago" not in page(both, {"spark": document})


def test_less_is_better_where_a_figure_says_so() -> None:
    assert verdict(0.5, LESS) == "0.50× (better)"
    assert verdict(0.5, "more") == "0.50× (worse)"
    assert verdict(1.01, LESS) == "1.01× (equal)"


def test_percentiles_are_of_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 1001)]
    assert [percentile(values, at) for at in (50, 99, 99.9, 100)] == [500, 990, 999, 1000]
    assert percentile([7.0], 50) == 7.0


def test_numbers_are_shown_with_what_matters() -> None:
    assert [shown(value, "x") for value in (123456.7, 12.345, 1.234, 3.0)] == ["123,457 x", "12.3 x", "1.23 x", "3 x"]


def test_rounds_become_medians_figure_by_figure() -> None:
    rounds = [[Figure("a", value, "s")] for value in (9.0, 1.0, 2.0)]
    assert [(figure.name, figure.value) for figure in medians(rounds)] == [("a", 2.0)]


def test_loads_have_names_of_their_own_and_one_way_to_run() -> None:
    assert len({load.name for load in LOADS}) == len(LOADS)
    assert all(sum(way is not None for way in (load.shared, load.fresh, load.ours)) == 1 for load in LOADS)
    assert Scale("quick").of(1, 2, 3) == 1
    assert "F-PLAT-14" in {row.id for row in catalogue()}
