# SPDX-License-Identifier: Apache-2.0
"""The syntax of Pulsar's and BookKeeper's configuration files: Java properties.

Comments start with # or !; `=`, `:` or blanks end a key; a backslash at the end of a line continues it; spaces around
a value are dropped, as Pulsar does. Owns syntax only: what a key means is the table's business.
Decides.
"""

import re
from typing import Final, NamedTuple

FILE_CHARACTERS_MAX: Final = 4 * 1024 * 1024

_KEY = re.compile(r"((?:[^\\=:\s]|\\.)+)\s*[=:]?\s*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_NAMED_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "": ""}


class Property(NamedTuple):
    key: str
    value: str
    # Of the line on which the key stands, counted from one.
    line: int


def parse_properties(text: str) -> list[Property]:
    """All properties in the order of the file, repeated keys included. A value may be empty."""
    properties = []
    for line, logical in _logical_lines(text):
        match = _KEY.match(logical)
        if match is not None:
            value = _unescape(logical[match.end() :]).strip()
            properties.append(Property(_unescape(match[1]), value, line))
        else:
            properties.append(Property("", logical.strip(), line))
    return properties


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines without comments and blanks, with continuations joined, each with the number where it starts."""
    lines: list[tuple[int, str]] = []
    pending = ""
    start = 0
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        stripped = raw.lstrip()
        if not pending:
            if not stripped or stripped[0] in "#!":
                continue
            start = number
        whole = pending + stripped
        # An odd number of backslashes at the end continues the line; an even number is escaped backslashes.
        backslashes = len(whole) - len(whole.rstrip("\\"))
        if backslashes % 2:
            pending = whole[:-1]
            continue
        lines.append((start, whole))
        pending = ""
    if pending:
        lines.append((start, pending))
    return lines


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _character(match[1]), text)


def _character(escape: str) -> str:
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _NAMED_ESCAPES.get(escape, escape)
