# SPDX-License-Identifier: Apache-2.0
"""Draws docs/performance/*.png: bars of every side, whiskers from the lowest round to the highest, floors and aims.

Each picture is of one run, whichever measured any of its rows last.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.aims import marks, reference
from benchmarks.figures import LESS, shown
from benchmarks.results import Document

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Row = dict[str, Any]
COLOURS: Final = {"magnetar": "#2a6f97", "pulsar": "#b0b0b0", "kafka": "#d9b66a"}
OTHERS: Final = "#888888"
FLOOR: Final = "#c1440e"
AIM: Final = "#2e8b3d"
LOGARITHMIC: Final = ("ms", "msg/s", "rows/s", "s", "µs", "KB")
BAR_INCHES: Final = 0.18
GAP: Final = 0.7
"""Between two rows, in bars."""
FRAME_INCHES: Final = 0.85
LEGEND_INCHES: Final = 0.35


class Panel(NamedTuple):
    """The rows of some groups with one unit; `has` narrows them further."""

    title: str
    groups: tuple[str, ...]
    unit: str
    has: Callable[[str], bool] = lambda name: True


PANELS: Final = {
    "publish": (Panel("Publish", ("publish",), "msg/s"),),
    "latency": (Panel("Latency", ("latency",), "ms"),),
    "consume": (Panel("Consume", ("consume",), "msg/s"),),
    "many": (
        Panel("Many producers, topics and subscriptions: rate", ("many",), "msg/s"),
        Panel("Many topics: latency", ("many",), "ms"),
    ),
    "start": (Panel("Start, recovery and administration", ("start and memory", "recovery", "admin"), "s"),),
    "memory": (
        Panel("Memory", ("start and memory",), "MB", lambda name: name.startswith("memory")),
        Panel("Idle CPU", ("start and memory",), "% of a core"),
    ),
    "disk": (Panel("Bytes on disk", ("start and memory",), "MB", lambda name: name.startswith("on disk")),),
    "slopes": (
        Panel("Memory of one more", ("cost of one more",), "KB"),
        Panel("CPU to make one more", ("cost of one more",), "µs"),
        Panel("Idle CPU with all of them", ("cost of one more",), "% of a core"),
    ),
    "spark": (
        Panel("Topics in Spark", ("spark",), "rows/s"),
        Panel("Publishing beside a query", ("spark",), "ms"),
    ),
}


def draw(documents: list[Document], directory: Path) -> list[Path]:
    """One picture a kind; a kind that nothing was measured of has none."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for name, panels in PANELS.items():
        path = directory / f"{name}.png"
        path.unlink(missing_ok=True)
        document = newest(panels, documents)
        if document is None:
            continue
        filled = [(panel, rows) for panel in panels if (rows := rows_in(panel, document))]
        beside = reference(document)
        sides = [side for side in document["sides"] if any(_has(side, row) for _, rows in filled for row in rows)]
        heights = [FRAME_INCHES + BAR_INCHES * _places(rows)[-1] for _, rows in filled]
        figure, every = plt.subplots(
            len(filled),
            1,
            figsize=(11, sum(heights) + LEGEND_INCHES),
            height_ratios=heights,
            squeeze=False,
            layout="constrained",
        )
        for axes, (panel, rows) in zip(every[:, 0], filled, strict=True):
            _fill(axes, panel, rows, sides, beside)
            axes.set_title(f"{panel.title} — {_when(document, rows)}", fontsize=10, loc="left")
        handles = list(_legend(sides, [row for _, rows in filled for row in rows], beside))
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), fontsize=8, frameon=False)
        figure.savefig(path, dpi=90)
        plt.close(figure)
        made.append(path)
    return made


def newest(panels: tuple[Panel, ...], documents: list[Document]) -> Document | None:
    """That with the youngest row of a picture."""
    last = [
        (max(row["run"] for panel in panels for row in rows_in(panel, document)), document)
        for document in documents
        if any(rows_in(panel, document) for panel in panels)
    ]
    return max(last, key=lambda each: each[0])[1] if last else None


def rows_in(panel: Panel, document: Document) -> list[Row]:
    return [
        row
        for group in panel.groups
        for row in document["rows"]
        if row["group"] == group and row["unit"] == panel.unit and panel.has(row["name"])
    ]


def _has(side: str, row: Row) -> bool:
    return side == "magnetar" or side in row["peers"]


def _when(document: Document, rows: list[Row]) -> str:
    runs = [run for run in document["runs"] if any(row["run"] == run["began"] for row in rows)]
    scales = {run["began"]: run["scale"] if " " in run["scale"] else f"{run['scale']} scale" for run in runs}
    return "; ".join(f"{began[:10]}, {scale}" for began, scale in scales.items())


def _places(rows: list[Row]) -> list[float]:
    """Where each row begins, in bars from the top, and where the last one ends."""
    found = [GAP / 2]
    for row in rows:
        found.append(found[-1] + 1 + len(row["peers"]) + GAP)
    return found


def _fill(axes: "Axes", panel: Panel, rows: list[Row], sides: list[str], beside: str) -> None:
    logarithmic = panel.unit in LOGARITHMIC
    drawn = [value for row in rows for value in (row["number"], *row["peers"].values(), *marks(row, beside)) if value]
    lowest = min((value for value in drawn if value > 0), default=1.0)
    places = _places(rows)
    for row, top in zip(rows, places, strict=False):
        present = [side for side in sides if _has(side, row)]
        for number, side in enumerate(present):
            value = row["number"] if side == "magnetar" else row["peers"][side]
            place = top + number + 0.5
            hatch = "///" if side in row["unlike"] else None
            axes.barh(place, value, 0.94, color=COLOURS.get(side, OTHERS), hatch=hatch)
            ends = row["rounds"].get(side) or [value]
            if len(ends) > 1:
                axes.plot([min(ends), max(ends)], [place, place], color="#222222", linewidth=0.8)
            # Words of a value that a logarithmic axis has no place for begin where the axis does.
            at = max(value, *ends, lowest / 2 if logarithmic else 0.0)
            _write(axes, shown(value, panel.unit), at, place)
        for at_x, colour in zip(marks(row, beside), (FLOOR, AIM), strict=True):
            if at_x is not None:
                axes.plot([at_x, at_x], [top - 0.2, top + len(present) + 0.2], color=colour, linewidth=1.8)
    middles = [top + (1 + len(row["peers"])) / 2 for row, top in zip(rows, places, strict=False)]
    axes.set_yticks(middles, [row["name"].strip() for row in rows], fontsize=8)
    axes.set_ylim(places[-1], 0)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(left=lowest / 2)
    axes.set_xlim(right=_right(axes, logarithmic))
    better = "less" if rows[0]["better"] == LESS else "more"
    axes.set_xlabel(f"{panel.unit} ({better} is better{', logarithmic' if logarithmic else ''})", fontsize=8)
    _dress(axes, logarithmic)


def _write(axes: "Axes", words: str, at: float, place: float) -> None:
    """Beside a bar, and over the lines of floor and aim."""
    beneath = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6}
    axes.annotate(
        words, (at, place), (4, 0), textcoords="offset points", va="center", fontsize=7, zorder=5, bbox=beneath
    )


def _dress(axes: "Axes", logarithmic: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    left, right = axes.get_xlim()
    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_major_formatter(plain)
    if logarithmic and right / left < 200:
        # Within two decades the powers of ten alone are too few to read a length by.
        axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.xaxis.set_minor_formatter(plain)
    elif logarithmic:
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="both", labelsize=7)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    for edge in ("top", "right", "left"):
        axes.spines[edge].set_visible(False)


def _right(axes: "Axes", logarithmic: bool) -> float:
    """Room for the words behind the longest bar."""
    left, right = axes.get_xlim()
    return float(right * (right / left) ** 0.14 if logarithmic else right * 1.12)


def _legend(sides: list[str], rows: list[Row], beside: str) -> "Iterator[Artist]":
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    for side in sides:
        colour = COLOURS.get(side, OTHERS)
        if any(_has(side, row) and side not in row["unlike"] for row in rows):
            yield Patch(color=colour, label=side)
        if any(side in row["unlike"] for row in rows):
            yield Patch(facecolor=colour, edgecolor="black", hatch="///", label=f"{side}, counted otherwise")
    if any(len(values) > 1 for row in rows for values in row["rounds"].values()):
        yield Line2D([], [], color="#222222", linewidth=0.8, label="lowest to highest round")
    found = [marks(row, beside) for row in rows]
    if any(floor is not None for floor, _ in found):
        yield Line2D([], [], color=FLOOR, linewidth=1.8, label="floor")
    if any(aim is not None for _, aim in found):
        yield Line2D([], [], color=AIM, linewidth=1.8, label="aim")
