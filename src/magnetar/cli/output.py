# SPDX-License-Identifier: Apache-2.0
"""What a command found, for people and for scripts.

Not on a terminal it looks as pulsar-admin's: lists one to a line, everything else as indented JSON; `--json` is one
JSON value in any case. On a terminal small records are tables and JSON has colours. Nothing is shown for nothing.
Carries.
"""

import json
import sys
from typing import Any, Final, TextIO

_TABLE_ROWS_MAX: Final = 40


def show(value: Any, *, as_json: bool = False, stream: TextIO | None = None) -> None:
    out = sys.stdout if stream is None else stream
    if as_json:
        out.write(json.dumps(value, indent=2) + "\n")
    elif value is None:
        return
    elif isinstance(value, str):
        out.write(value + "\n")
    elif isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        out.writelines(f"{each}\n" for each in value)
    elif out.isatty():
        _show_on_terminal(value)
    else:
        out.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _show_on_terminal(value: Any) -> None:
    from rich.console import Console

    console = Console()
    if isinstance(value, dict) and len(value) <= _TABLE_ROWS_MAX and all(_is_small(each) for each in value.values()):
        from rich.table import Table

        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, each in value.items():
            table.add_row(f"[bold]{name}[/bold]", _cell(each))
        console.print(table)
    else:
        console.print_json(json.dumps(value))


def _is_small(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(each, str | int | float | bool) for each in value)
    return not isinstance(value, dict)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(each) for each in value)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return str(value)
