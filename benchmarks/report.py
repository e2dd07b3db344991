# SPDX-License-Identifier: Apache-2.0
"""Writes docs/performance.md's table and its plots from the last runs: those in .results/bench, else those kept.

    python -m benchmarks.report [--plots]

The page keeps what people wrote around the two marks; what stands between them is replaced. The measurements that it
was written from are kept beside the plots, in docs/performance, and what other benchmarks answer of the catalogue with
them. Each plot is of the run that measured its rows last. Plots need matplotlib (requirements/bench.txt); without
it the page is written and the plots stay as they are.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any, Final

from benchmarks import quoted
from benchmarks.aims import BETWEEN, MISSED, REACHED, against_aim, judge_of, quick_runs, reference
from benchmarks.figures import LESS, shown
from benchmarks.results import HOUSE, KEPT, RESULTS, Document, last_measured

PAGE: Final = HOUSE / "docs" / "performance.md"
BEGIN: Final = "<!-- measured: written by python -m benchmarks.report -->"
END: Final = "<!-- end of what is measured -->"
RUNS: Final = {"peers": "Beside Apache Pulsar", "bench": "Magnetar alone", "spark": "Topics in Spark"}
# In this order, whichever was measured last; what is not named here follows.
GROUPS: Final = ("start and memory", "publish", "latency", "consume", "admin", "many", "cost of one more", "recovery")
PLOTS: Final = ("publish", "latency", "consume", "many", "start", "memory", "disk", "slopes", "spark")
DIGITS_KEPT: Final = 7

Row = dict[str, Any]


def rows_of(document: Document) -> list[Row]:
    """The measured rows, group by group."""
    rows: list[Row] = document["rows"]
    groups = [*GROUPS, *dict.fromkeys(row["group"] for row in rows if row["group"] not in GROUPS)]
    return sorted(rows, key=lambda row: groups.index(row["group"]))


def verdict(ratio: float, better: str, spread: tuple[float, float] | None = None) -> str:
    """How many times better or worse than the peer, and than which in the rounds of which this is the median."""
    if not ratio or math.isinf(ratio) or math.isnan(ratio):
        return "–"
    good = 1 / ratio if better == LESS else ratio
    word = "better" if good > 1.05 else "worse" if good < 0.95 else "equal"
    return f"{ratio:.2f}× ({word}{f'; {spread[0]:.2f} to {spread[1]:.2f}' if spread else ''})"


def covered(rows: list[Row], began: str) -> str:
    """Groups that a run measured, or the loads of one that it measured a part of."""
    words = []
    for group in dict.fromkeys(row["group"] for row in rows):
        loads = {row["load"]: None for row in rows if row["group"] == group}
        own = {row["load"]: None for row in rows if row["group"] == group and row["run"] == began}
        if own:
            words.append(group if own == loads else f"{group} ({', '.join(own)})")
    return ", ".join(words) or "nothing"


def _about(document: Document, rows: list[Row]) -> list[str]:
    """Every run that a row is of: when, where, against what, under which load, and what went wrong."""
    lines = []
    several = len(document["runs"]) > 1
    for number, run in enumerate(document["runs"], 1):
        loads = [row["load_average"] for row in rows if row["run"] == run["began"]] or [0.0]
        begun = f"begun {run['began']}, scale `{run['scale']}`"
        lines.append(f"- run {number}, {begun}: {covered(rows, run['began'])}" if several else f"- {begun}")
        facts = [f"machine: {run['machine']}", f"load average while it ran: {min(loads):.1f} to {max(loads):.1f}"]
        facts += [f"{name}: {words}" for name, words in run["words"].items()]
        facts += run["remarks"]
        facts += [
            f"failed: {failure['load']} on {failure['words']}"
            for failure in document["failures"]
            if failure["run"] == run["began"]
        ]
        lines += [f"{'  ' if several else ''}- {fact}" for fact in facts]
    return lines


def _judgement(document: Document, rows: list[Row]) -> list[str]:
    """Every row with an aim, by whether it got there: whoever measures anew need not read the table for it."""
    judge, beside, quick = judge_of(document), reference(document), quick_runs(document)
    found: dict[str, list[str]] = {}
    for row in rows:
        if (verdict_of := judge(row)) is not None:
            found.setdefault(verdict_of, []).append(f"{row['name'].strip()} ({against_aim(row, beside)})")
    heads = {REACHED: "Aim reached", BETWEEN: "Floor reached, aim not", MISSED: "Missed"}
    lines = [
        line for verdict_of, head in heads.items() if verdict_of in found
        for line in ("", f"**{head}** ({len(found[verdict_of])}): {'; '.join(found[verdict_of])}.")
    ]  # fmt: skip
    if unjudged := sum(1 for row in rows if row["aim"] and row["run"] in quick):
        lines += ["", f"**Not judged** ({unjudged}): rows of *quick* scale, whose times are too short to be true."]
    return lines


def markdown(name: str, document: Document) -> str:
    rows = rows_of(document)
    others = document["sides"][1:]
    numbers = {run["began"]: number for number, run in enumerate(document["runs"], 1)}
    lines = [f"### {RUNS.get(name, name)}", "", *_about(document, rows), *_judgement(document, rows)]
    group = ""
    for row in rows:
        if row["group"] != group:
            group = row["group"]
            heads = ["what", "magnetar", *others, *(f"ratio to {other}" for other in others), "aim", "settings"]
            lines += ["", f"#### {group.capitalize()}", "", _line(heads), _line(["---"] * len(heads))]
        peers = [shown(row["peers"].get(other, math.nan), row["unit"]) for other in others]
        ratios = [
            verdict(row["ratios"].get(other, math.nan), row["better"], row["spreads"].get(other)) for other in others
        ]
        what = row["name"].replace("  ", "↳ ")
        of_run = [f"run {numbers[row['run']]}"] if len(numbers) > 1 else []
        settings = "; ".join([*filter(None, [row["settings"]]), *of_run])
        lines.append(_line([what, shown(row["number"], row["unit"]), *peers, *ratios, row["aim"], settings]))
    return "\n".join(lines + quoted.table(rows))


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def page(text: str, runs: dict[str, Document], pictures: Path = KEPT) -> str:
    """The page with the measured part replaced; a run that nothing is kept of stays as it stands."""
    head, _, rest = text.partition(BEGIN)
    before, _, tail = rest.partition(END)
    plots = [f"![{name}](performance/{name}.png)" for name in PLOTS if (pictures / f"{name}.png").exists()]
    sections = [markdown(name, runs[name]) if name in runs else _section(before, title) for name, title in RUNS.items()]
    parts = [BEGIN, *plots, *(section for section in sections if section), END]
    return head + "\n\n".join(parts) + (tail or "\n")


def _section(text: str, title: str) -> str:
    """What the page says of a run already; empty when it says nothing."""
    _, found, rest = text.partition(f"### {title}\n")
    return (found + rest.partition("\n### ")[0]).strip()


def compact(document: Document) -> str:
    """A row a line, so that what changed can be seen."""
    parts = []
    for name, value in document.items():
        if name == "rows":
            rows = ",\n".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in value)
            parts.append(f'"rows":[\n{rows}\n]')
        else:
            parts.append(f"{json.dumps(name)}:{json.dumps(value, indent=1, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def short(value: Any) -> Any:
    """With the digits that are kept, so that the page is the same when it is written from what was kept of a run."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS_KEPT}g}")
    if isinstance(value, dict):
        return {name: short(each) for name, each in value.items()}
    return [short(each) for each in value] if isinstance(value, list | tuple) else value


def write(results: Path, kept: Path, page_path: Path, *, plots: bool) -> list[Path]:
    """Keep what was measured, draw it, and write the page; what was written."""
    found = {name: last_measured(name, (results, kept)) for name in RUNS}
    runs: dict[str, Document] = {name: short(document) for name, document in found.items() if document is not None}
    if not runs:
        raise SystemExit("nothing was measured yet: make bench")
    kept.mkdir(parents=True, exist_ok=True)
    for name, document in runs.items():
        (kept / f"{name}.json").write_text(compact(document))
    for path in sorted(results.glob("*.json")):
        if path.stem not in RUNS:
            (kept / path.name).write_text(path.read_text())
    drawn: list[Path] = []
    if plots:
        from benchmarks.plots import draw

        drawn = draw(list(runs.values()), kept)
    page_path.write_text(page(page_path.read_text() if page_path.exists() else "# Performance\n\n", runs, kept))
    return [*drawn, page_path]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plots", action="store_true", help="draw the plots too")
    arguments = parser.parse_args()
    for path in write(RESULTS, KEPT, PAGE, plots=arguments.plots):
        print(path.relative_to(HOUSE))


if __name__ == "__main__":
    main()
