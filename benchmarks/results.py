# SPDX-License-Identifier: Apache-2.0
"""Where measurements go: a table on the terminal, and one file each under .results/bench for `make features`."""

import datetime
import json
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parent.parent / ".results" / "bench"


class Measurement(NamedTuple):
    """One line of a table; features are the catalogue rows that it answers."""

    name: str
    value: str
    aim: str = ""
    features: tuple[str, ...] = ()


def report(title: str, measurements: list[Measurement]) -> None:
    """Print them, and remember those that answer a catalogue row."""
    table = Table(title=title)
    for heading in ("what", "measured", "aim"):
        table.add_column(heading)
    for measurement in measurements:
        table.add_row(measurement.name, measurement.value, measurement.aim)
    Console().print(table)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    tagged = [
        {"features": list(each.features), "value": f"{each.name}: {each.value}", "date": today}
        for each in measurements
        if each.features
    ]
    if tagged:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{title.replace(' ', '-')}.json").write_text(json.dumps(tagged, indent=1))
