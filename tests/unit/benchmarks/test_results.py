# SPDX-License-Identifier: Apache-2.0
"""What a run leaves behind: rows beside their peers, catalogue rows put together, a page that keeps its words."""

import json
from pathlib import Path

import pytest

from benchmarks import plots, results
from benchmarks.__main__ import LOADS, medians
from benchmarks.figures import LESS, Figure, Scale, latency_figures, percentile, shown
from benchmarks.plots import PANELS, newest
from benchmarks.report import BEGIN, END, compact, markdown, page, rows_of, short, verdict, write
from benchmarks.results import Document, Measurement, Run, Side, last_measured, ratio_words, spread
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
    assert measurements(tmp_path, tmp_path)["F-PLAT-14"].value == "publish: 200 msg/s; publish, p99: 3 ms"


def test_a_row_has_its_peer_its_ratio_its_load_average_and_its_run(tmp_path: Path) -> None:
    document = a_run(tmp_path).document()
    first, second, third = document["rows"]
    (run,) = document["runs"]
    assert (first["peers"], first["ratios"]) == ({"other": 100.0}, {"other": 2.0})
    assert run["words"] == {"magnetar": "ours", "other": "theirs"}
    assert (run["machine"], run["scale"]) == ("2 cores", "quick")
    assert (first["load_average"], first["run"]) == (12.3, run["began"])
    assert second["ratios"] == {"other": 0.5}
    assert (third["peers"], third["ratios"]) == ({}, {})


def test_a_ratio_says_what_it_was_in_single_rounds(tmp_path: Path) -> None:
    run = Run("peers", "2 cores", "quick", [Side("magnetar", "ours"), Side("other", "theirs")], tmp_path)
    ours = medians([[Figure("p99.9", value, "ms", LESS)] for value in (1.0, 6.0, 2.0)])
    theirs = medians([[Figure("p99.9", value, "ms", LESS)] for value in (4.0, 3.0, 5.0)])
    run.add("latency", {"magnetar": ours, "other": theirs}, 0.0)
    (row,) = run.document()["rows"]
    assert (row["number"], row["peers"], row["ratios"]) == (2.0, {"other": 4.0}, {"other": 0.5})
    assert row["spreads"] == {"other": (0.25, 2.0)}
    assert ratio_words(row, "other") == "0.50, 0.25 to 2.00"
    assert "0.50× (better; 0.25 to 2.00)" in markdown("peers", run.document())
    assert spread(ours[0], medians([[Figure("p99.9", 4.0, "ms", LESS)]])[0]) is None, "other rounds"


def test_a_load_that_failed_on_one_side_leaves_the_others_rows(tmp_path: Path) -> None:
    run = Run("peers", "2 cores", "quick", [Side("magnetar", "ours"), Side("other", "theirs")], tmp_path)
    run.add("publish", {"magnetar": [Figure("publish", 1.0, "s")]}, 0.0)
    run.add("publish", {"other": [Figure("publish", 1.0, "s")]}, 0.0)
    assert [row["name"] for row in run.document()["rows"]] == ["publish"]


def test_the_page_keeps_what_stands_around_the_marks(tmp_path: Path) -> None:
    document = json.loads(json.dumps(a_run(tmp_path).document()))
    once = page(f"# Words\n\n{BEGIN}\nold\n{END}\n\nmore words\n", {"peers": document})
    assert once.startswith("# Words\n")
    assert once.endswith("more words\n")
    assert "old" not in once
    assert page(once, {"peers": document}) == once
    assert "| publish | 200 msg/s | 100 msg/s | 2.00× (better) | 1× → 2× |" in once
    assert "| only ours | 1.50 s | – | – |" in markdown("peers", document)
    groups = [row["group"] for row in rows_of(document | {"rows": document["rows"] * 2})]
    assert groups == sorted(groups, key=groups.index), "each group stands together"
    # A run that was not made here stays as it stands, and one that was takes its own place only.
    spark = "### Topics in Spark\n\n- begun long ago\n\n#### Spark\n\n| rows | 7 |"
    both = page(once.replace(END, f"{spark}\n\n{END}"), {"peers": document})
    assert spark in both
    assert both.replace(f"{spark}\n\n", "") == once
    assert page(both, {"spark": document}).count("### Beside Apache Pulsar") == 1
    assert "long ago" not in page(both, {"spark": document})


def aimed(tmp_path: Path, scale: str) -> str:
    run = Run("peers", "2 cores", scale, [Side("magnetar", "ours"), Side("pulsar", "theirs")], tmp_path)
    ours = [Figure("rate", 200.0, "msg/s", "more", "1× → 2×"), Figure("other rate", 150.0, "msg/s", "more", "1× → 2×")]
    ours += [Figure("memory", 130.0, "MB", LESS, "≤ 120 MB"), Figure("no aim", 1.0, "s")]
    run.add("publish", {"magnetar": ours, "pulsar": [Figure(each.name, 100.0, each.unit) for each in ours]}, 0.0)
    return markdown("peers", run.document())


def test_rows_with_an_aim_are_judged_before_the_table(tmp_path: Path) -> None:
    text = aimed(tmp_path, "usual")
    assert "**Aim reached** (1): rate (2.00× of 1× → 2×)." in text
    assert "**Floor reached, aim not** (1): other rate (1.50× of 1× → 2×)." in text
    assert "**Missed** (1): memory (130 MB of ≤ 120 MB)." in text
    assert "Not judged" not in text


def test_rows_of_quick_scale_are_not_judged_and_the_page_says_so(tmp_path: Path) -> None:
    text = aimed(tmp_path, "quick")
    assert "**Not judged** (3): rows of *quick* scale, whose times are too short to be true." in text
    assert not any(word in text for word in ("**Aim reached**", "**Floor reached", "**Missed**"))


@pytest.mark.parametrize(
    ("number", "words", "missed"),
    [
        (1.5, "p99, times: 1.50 times (≤ 2: reached)", False),
        (3.25, "p99, times: 3.25 times (≤ 2: missed)", True),
    ],
)
def test_an_answered_row_says_whether_its_aim_was_missed(
    number: float, words: str, missed: bool, tmp_path: Path
) -> None:
    figures = [
        Figure("p99, times", number, "times", LESS, "≤ 2", features=("F-PLAT-14",)),
        Figure("rate", 150.0, "msg/s", aim="1× → 2×", features=("F-PLAT-14",)),
    ]
    theirs = [Figure("rate", 100.0, "msg/s")]
    for scale in ("usual", "quick"):
        run = Run("peers", "2 cores", scale, [Side("magnetar", "ours"), Side("pulsar", "")], tmp_path / "bench")
        run.add("latency", {"magnetar": figures, "pulsar": theirs}, 0.0)
        run.write()
        found = measurements(tmp_path, tmp_path)["F-PLAT-14"]
        if scale == "usual":
            assert found.value == f"{words}; rate: 150 msg/s (1.50× of 1× → 2×: the floor alone)"
            assert (found.missed, found.quick) == (missed, False)
    assert "(" not in found.value
    assert (found.missed, found.quick) == (False, True)


def test_what_is_kept_of_a_run_answers_the_catalogue_as_the_run_did(tmp_path: Path) -> None:
    run = a_run(tmp_path / "bench")
    run.write()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "peers.json").write_text(compact(run.document()))
    made_here = measurements(tmp_path, tmp_path / "nowhere")
    assert made_here == measurements(tmp_path / "nowhere", tmp_path / "kept")
    assert list(made_here) == ["F-PLAT-14"]


def test_a_line_of_a_table_says_whether_its_aim_was_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "bench")
    results.report("a table", [Measurement("share", "40%", "50 %", ("F-PLAT-14",), missed=True)])
    assert measurements(tmp_path, tmp_path)["F-PLAT-14"].words.startswith(
        "measured, aim missed: share: 40% (50 %: missed), "
    )


def test_the_page_and_its_plots_are_of_the_runs_that_were_made_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, kept, written = tmp_path / "made", tmp_path / "kept", tmp_path / "page.md"
    peers = begun(tmp_path / "peers", "2026-01-01T00:00:00", "old")
    peers.add("publish", {"magnetar": [Figure("rate", 1.0, "msg/s")]}, 0.0)
    kept.mkdir()
    (kept / "peers.json").write_text(compact(peers.document()))
    bench = Run("bench", "2 cores", "usual", [Side("magnetar", "new")], made)
    bench.add("publish", {"magnetar": [Figure("rate", 2.0, "msg/s")]}, 0.0)
    bench.write()
    (made / "journal.json").write_text('[{"features": ["F-PLAT-14"], "value": "61 %", "date": "2026-01-01"}]')
    drawn: list[list[str]] = []

    def draw(documents: list[Document], directory: Path) -> list[Path]:
        found = newest(PANELS["publish"], documents)
        assert found is not None
        drawn.append([f"{row['number']:g}" for row in found["rows"]])
        return []

    monkeypatch.setattr(plots, "draw", draw)
    write(made, kept, written, plots=True)
    assert drawn == [["2"]], "the peers' run is older"
    text = written.read_text()
    assert text.index("### Beside Apache Pulsar") < text.index("### Magnetar alone")
    assert {path.name for path in kept.iterdir()} == {"peers.json", "bench.json", "journal.json"}
    assert measurements(tmp_path / "nowhere", kept)["F-PLAT-14"].value == "61 %"


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


def test_the_worst_of_several_rounds_is_the_worst_of_all() -> None:
    found = medians([latency_figures("sends", [value]) for value in (9.0, 1.0, 2.0)])
    assert {figure.name: figure.value for figure in found} == {
        "sends, p50": 2.0,
        "sends, p99": 2.0,
        "sends, p99.9": 2.0,
        "sends, max": 9.0,
    }


def begun(directory: Path, began: str, words: str, sides: tuple[str, ...] = ("other",)) -> Run:
    run = Run("peers", f"machine of {words}", "usual", [Side(name, words) for name in ("magnetar", *sides)], directory)
    run._began = began
    return run


def test_rows_that_are_kept_keep_the_run_that_made_them(tmp_path: Path) -> None:
    figures = {name: [Figure("rate", 2.0, "msg/s")] for name in ("magnetar", "other")}
    lag = {name: [Figure("lag", 3.0, "ms", LESS)] for name in ("magnetar", "other")}
    first = begun(tmp_path, "2026-01-01T00:00:00", "old code")
    first.add("publish", figures, 1.0, "publish-raw", 1)
    first.add("publish", lag, 1.0, "publish-perf", 1)
    first.add("latency", lag, 1.0, "latency", 1)
    first.fail("latency", "other: it stood still")
    first.fail("publish-perf", "other: no generator")
    first.write()
    second = begun(tmp_path, "2026-02-02T00:00:00", "new code", ())
    second.keep_earlier()
    second.add("publish", figures, 9.0, "publish-raw", 1)
    second.add("publish", {}, 9.0, "publish-perf", 1)
    document = second.document()
    assert [(row["load"], row["run"][:10]) for row in document["rows"]] == [
        ("publish-raw", "2026-02-02"),
        ("publish-perf", "2026-01-01"),
        ("latency", "2026-01-01"),
    ]
    assert [each["load"] for each in document["failures"]] == ["latency"], "the other load was tried again"
    text = markdown("peers", document)
    assert "- run 1, begun 2026-01-01T00:00:00, scale `usual`: publish (publish-perf), latency\n" in text
    assert "- run 2, begun 2026-02-02T00:00:00, scale `usual`: publish (publish-raw)\n" in text
    assert "  - machine: machine of old code\n  - load average while it ran: 1.0 to 1.0\n" in text
    assert "  - machine: machine of new code\n  - load average while it ran: 9.0 to 9.0\n" in text
    assert "  - other: old code" in text
    assert "  - failed: latency on other: it stood still" in text
    assert "no generator" not in text
    assert "| what | magnetar | other | ratio to other |" in text, "a side that was there once keeps its column"
    assert "| rate | 2 msg/s | – | – |  | run 2 |" in text
    assert "| lag | 3 ms | 3 ms | 1.00× (equal) |  | run 1 |" in text


def test_a_run_whose_rows_were_all_measured_again_is_forgotten(tmp_path: Path) -> None:
    figures = {"magnetar": [Figure("rate", 2.0, "msg/s")]}
    first = begun(tmp_path, "2026-01-01T00:00:00", "old code")
    first.add("publish", figures, 1.0, "publish-raw", 1)
    first.fail("publish-raw", "other: gone")
    first.write()
    second = begun(tmp_path, "2026-02-02T00:00:00", "new code")
    second.keep_earlier()
    second.add("publish", figures, 1.0, "publish-raw", 1)
    assert "old code" not in markdown("peers", second.document())


def test_a_fresh_clone_has_what_the_page_was_written_from(tmp_path: Path) -> None:
    results_here, kept = tmp_path / "results", tmp_path / "kept"
    run = a_run(results_here)
    run.add("many", {"magnetar": [Figure("rate", 10 / 3 * 1e6, "msg/s")]}, 0.0)
    run.fail("publish", "other: RuntimeError: two\nlines")
    kept.mkdir()
    measured = short(run.document())
    (kept / "peers.json").write_text(compact(measured))
    found = last_measured("peers", (results_here, kept))
    assert found is not None
    assert found == json.loads(json.dumps(measured))
    assert found["rows"][-1]["number"] == 3333333.0
    assert markdown("peers", short(found)) == markdown("peers", measured)
    assert last_measured("bench", (results_here, kept)) is None
    again = Run("peers", "2 cores", "quick", [Side("magnetar", "ours")], results_here)
    again.keep_earlier(kept)
    assert len(again.document()["rows"]) == 4
    results_here.mkdir()
    (results_here / "peers.json").write_text('[{"features": [], "value": "peers", "date": "2026-01-01", "about": {}}]')
    assert last_measured("peers", (results_here,)) is None, "of a form in which rows do not know their run"


def test_a_median_of_fewer_rounds_says_so(tmp_path: Path) -> None:
    run = begun(tmp_path, "2026-01-01T00:00:00", "code")
    ours = medians([[Figure("rate", value, "msg/s", settings="1 KiB")] for value in (1.0, 2.0, 3.0)])
    theirs = medians([[Figure("rate", value, "msg/s")] for value in (1.0, 2.0)])
    run.add("publish", {"magnetar": ours, "other": theirs}, 0.0, "publish-raw", 3)
    run.add("publish", {"magnetar": medians([[Figure("half", 1.0, "s")]])}, 0.0, "publish-perf", 2)
    whole, half = run.document()["rows"]
    assert whole["settings"] == "1 KiB; other 2 of 3 rounds"
    assert whole["ratios"] == {"other": 4 / 3}
    assert whole["spreads"] == {}, "whose rounds stand beside whose is not known"
    assert half["settings"] == "1 of 2 rounds"


def test_what_another_clock_measured_has_no_ratio(tmp_path: Path) -> None:
    run = begun(tmp_path, "2026-01-01T00:00:00", "code")
    ours = [Figure("lag, p99", 1.0, "ms", LESS, settings="1 KiB")]
    run.add("latency", {"magnetar": ours, "other": [Figure("lag, p99", 4.0, "ms", LESS, unlike="by a sundial")]}, 0.0)
    (row,) = run.document()["rows"]
    assert (row["peers"], row["ratios"], row["unlike"]) == ({"other": 4.0}, {}, ["other"])
    assert row["settings"] == "1 KiB; other's by a sundial: no ratio"
    assert "| lag, p99 | 1 ms | 4 ms | – |" in markdown("peers", run.document())


def test_loads_have_names_of_their_own_and_one_way_to_run() -> None:
    assert len({load.name for load in LOADS}) == len(LOADS)
    assert all(sum(way is not None for way in (load.shared, load.fresh, load.ours)) == 1 for load in LOADS)
    assert Scale("quick").of(1, 2, 3) == 1
    assert "F-PLAT-14" in {row.id for row in catalogue()}
