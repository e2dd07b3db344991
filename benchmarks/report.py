# SPDX-License-Identifier: Apache-2.0
"""Writes docs/performance.md's table and its plots from the last runs in .results/bench.

    python -m benchmarks.report [--plots]

The page keeps what people wrote around the two marks; what stands between them is replaced. Plots need matplotlib
(requirements/bench.txt); without it the page is written and the plots stay as they are.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import LESS, shown
from benchmarks.results import RESULTS

HOUSE: Final = Path(__file__).resolve().parent.parent
PAGE: Final = HOUSE / "docs" / "performance.md"
PLOTS: Final = HOUSE / "docs" / "performance"
BEGIN: Final = "<!-- measured: written by python -m benchmarks.report -->"
END: Final = "<!-- end of what is measured -->"
RUNS: Final = {"peers": "Beside Apache Pulsar", "bench": "Magnetar alone", "spark": "Topics in Spark"}
# In this order, whichever was measured last; what is not named here follows.
GROUPS: Final = ("start and memory", "publish", "latency", "consume", "admin", "many", "cost of one more", "recovery")
PLOTTED: Final = {
    "publish": ("publish", "msg/s"),
    "latency": ("latency", "ms"),
    "consume": ("consume", "msg/s"),
    "memory": ("start and memory", "MB"),
}

Row = dict[str, Any]


def rows_of(document: list[Row]) -> tuple[list[Row], Row]:
    """The measured rows of a run, group by group, and what it says about itself."""
    about: Row = next(row["about"] for row in document if "about" in row)
    rows = [row for row in document if "number" in row]
    groups = [*GROUPS, *dict.fromkeys(row["group"] for row in rows if row["group"] not in GROUPS)]
    return sorted(rows, key=lambda row: groups.index(row["group"])), about


def verdict(ratio: float, better: str, spread: tuple[float, float] | None = None) -> str:
    """How many times better or worse than the peer, and than which in the rounds of which this is the median."""
    if not ratio or math.isinf(ratio) or math.isnan(ratio):
        return "–"
    good = 1 / ratio if better == LESS else ratio
    word = "better" if good > 1.05 else "worse" if good < 0.95 else "equal"
    return f"{ratio:.2f}× ({word}{f'; {spread[0]:.2f} to {spread[1]:.2f}' if spread else ''})"


def _scales(rows: list[Row], last: str) -> str:
    """The scale of most rows, and which groups have others: loads may be measured anew by themselves."""
    scales = [row.get("scale", last) for row in rows] or [last]
    usual = max(dict.fromkeys(scales), key=scales.count)
    others = dict.fromkeys(
        f"{row['group']} in part `{scale}`" for row, scale in zip(rows, scales, strict=False) if scale != usual
    )
    return "; ".join([f"scale `{usual}`", *others])


def markdown(name: str, document: list[Row]) -> str:
    rows, about = rows_of(document)
    others = [side["name"] for side in about["sides"][1:]]
    loads = [row["load_average"] for row in rows] or [0.0]
    lines = [f"### {RUNS.get(name, name)}", ""]
    lines += [f"- begun {about['began']}, {_scales(rows, about['scale'])}", f"- machine: {about['machine']}"]
    lines += [f"- load average while it ran: {min(loads):.1f} to {max(loads):.1f}"]
    lines += [f"- {side['name']}: {side['words']}" for side in about["sides"]]
    lines += [f"- failed: {failure.splitlines()[0]}" for failure in about["failures"]]
    group = ""
    for row in rows:
        if row["group"] != group:
            group = row["group"]
            heads = ["what", "magnetar", *others, *(f"ratio to {other}" for other in others), "aim", "settings"]
            lines += ["", f"#### {group.capitalize()}", "", _line(heads), _line(["---"] * len(heads))]
        peers = [shown(row["peers"].get(other, math.nan), row["unit"]) for other in others]
        ratios = [
            verdict(row["ratios"].get(other, math.nan), row["better"], row.get("spreads", {}).get(other))
            for other in others
        ]
        what = row["name"].replace("  ", "↳ ")
        lines.append(_line([what, shown(row["number"], row["unit"]), *peers, *ratios, row["aim"], row["settings"]]))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def page(text: str, runs: dict[str, list[Row]]) -> str:
    """The page with the measured part replaced; a run that was not made here stays as it stands."""
    head, _, rest = text.partition(BEGIN)
    before, _, tail = rest.partition(END)
    plots = [f"![{name}](performance/{name}.png)" for name in PLOTTED if (PLOTS / f"{name}.png").exists()]
    sections = [markdown(name, runs[name]) if name in runs else _section(before, title) for name, title in RUNS.items()]
    parts = [BEGIN, *plots, *(section for section in sections if section), END]
    return head + "\n\n".join(parts) + (tail or "\n")


def _section(text: str, title: str) -> str:
    """What the page says of a run already; empty when it says nothing."""
    _, found, rest = text.partition(f"### {title}\n")
    return (found + rest.partition("\n### ")[0]).strip()


def draw(runs: dict[str, list[Row]]) -> list[Path]:
    """One bar chart a kind, of the run beside a peer if there is one."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows, about = rows_of(runs.get("peers") or runs["bench"])
    sides = [side["name"] for side in about["sides"]]
    PLOTS.mkdir(parents=True, exist_ok=True)
    made = []
    for name, (group, unit) in PLOTTED.items():
        chosen = [row for row in rows if row["group"] == group and row["unit"] == unit]
        if not chosen:
            continue
        figure, axes = plt.subplots(figsize=(10, 0.9 + 0.34 * len(chosen) * len(sides) / 2 + 0.12 * len(chosen)))
        height = 0.8 / len(sides)
        for number, side in enumerate(sides):
            values = [row["number"] if number == 0 else row["peers"].get(side, 0.0) for row in chosen]
            places = [index + number * height for index in range(len(chosen))]
            axes.barh(places, values, height, label=side, color=("#2a6f97", "#bbbbbb", "#d9c38a")[number % 3])
        axes.set_yticks([index + 0.4 - height / 2 for index in range(len(chosen))])
        axes.set_yticklabels([row["name"] for row in chosen], fontsize=8)
        axes.invert_yaxis()
        axes.set_xscale("log" if unit in ("ms", "msg/s") else "linear")
        axes.set_xlabel(f"{unit} ({'less' if chosen[0]['better'] == LESS else 'more'} is better)")
        axes.set_title(f"{group}, {about['began'][:10]}, {about['scale']} scale", fontsize=10)
        axes.legend(fontsize=8)
        figure.tight_layout()
        path = PLOTS / f"{name}.png"
        figure.savefig(path, dpi=80)
        plt.close(figure)
        made.append(path)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plots", action="store_true", help="draw the plots too")
    arguments = parser.parse_args()
    runs = {
        name: json.loads((RESULTS / f"{name}.json").read_text()) for name in RUNS if (RESULTS / f"{name}.json").exists()
    }
    if not runs:
        raise SystemExit("nothing was measured yet: make bench")
    if arguments.plots and runs.keys() & {"peers", "bench"}:
        for path in draw(runs):
            print(path.relative_to(HOUSE))
    PAGE.write_text(page(PAGE.read_text() if PAGE.exists() else "# Performance\n\n", runs))
    print(PAGE.relative_to(HOUSE))


if __name__ == "__main__":
    main()
