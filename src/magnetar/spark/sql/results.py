# SPDX-License-Identifier: Apache-2.0
"""Rows as text: a table for people, CSV and JSON lines for programs; as they come, never all at once.

Bytes are shown as text where they are UTF-8, otherwise as hexadecimal (tables, CSV) or base64 (JSON).
Decides.
"""

import base64
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Final

TABLE_ROWS_MAX: Final = 500
CELL_CHARACTERS_MAX: Final = 100


def table_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Columns are as wide as the first rows need; a long table begins again with wider ones."""
    waiting = iter(rows)
    count = 0
    while True:
        page = [[_cell(value) for value in row] for row in islice(waiting, TABLE_ROWS_MAX)]
        if page or count == 0:
            yield from _page(names, page)
        count += len(page)
        if len(page) < TABLE_ROWS_MAX:
            break
    yield f"({count} row{'' if count == 1 else 's'})\n"


def _page(names: Sequence[str], page: list[list[str]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(names, *page, strict=True)]
    yield " | ".join(name.ljust(width) for name, width in zip(names, widths, strict=True)).rstrip() + "\n"
    yield "-+-".join("-" * width for width in widths) + "\n"
    for row in page:
        yield " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"


def _cell(value: Any) -> str:
    text = _text(value)
    if not text.isprintable():
        # What would break a line or steer a terminal is written out.
        text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 1] + "…"


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (bytes, bytearray)):
        text = _decoded(value)
        return bytes(value).hex() if text is None else text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(_plain(value), ensure_ascii=False)
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)


def _decoded(value: bytes | bytearray) -> str | None:
    """Bytes that are text, as text; None where they are not, or would steer a terminal."""
    try:
        text = bytes(value).decode()
    except UnicodeDecodeError:
        return None
    return text if all(one.isprintable() or one in "\n\r\t" for one in text) else None


def csv_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """With a line of names; null is an empty field."""
    out = io.StringIO()
    written = csv.writer(out, lineterminator="\n")
    written.writerow(names)
    for row in rows:
        written.writerow(["" if value is None else _text(value) for value in row])
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def json_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """One object to a line."""
    for row in rows:
        record = {name: _plain(value) for name, value in zip(names, row, strict=True)}
        yield json.dumps(record, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        text = _decoded(value)
        return base64.b64encode(bytes(value)).decode() if text is None else text
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(one) for key, one in value.items()}
    if hasattr(value, "asDict"):
        return _plain(value.asDict())
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
