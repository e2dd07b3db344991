# SPDX-License-Identifier: Apache-2.0
"""Statements about what there is, which Spark cannot answer for topics, and the ends of statements in a shell.

Decides.
"""

import re
from enum import Enum
from typing import Final, NamedTuple


class About(Enum):
    NAMESPACES = "namespaces"
    TOPICS = "topics"
    COLUMNS = "columns"
    USE = "use"


class Asked(NamedTuple):
    about: About
    # A namespace, or a topic's name in parts; empty where none is named.
    names: tuple[str, ...] = ()


_PART: Final = r'(?:"[^"]+"|`[^`]+`|[\w/:-]+)'
_NAME: Final = rf"({_PART}(?:\.{_PART})*)"
_FORMS: Final = (
    (About.NAMESPACES, re.compile(r"show\s+(?:databases|schemas|namespaces)", re.IGNORECASE)),
    (About.TOPICS, re.compile(rf"show\s+(?:tables|topics)(?:\s+(?:in|from)\s+{_NAME})?", re.IGNORECASE)),
    (About.COLUMNS, re.compile(rf"(?:describe|desc)\s+(?:table\s+)?{_NAME}", re.IGNORECASE)),
    (About.USE, re.compile(rf"use\s+{_NAME}", re.IGNORECASE)),
)


def asked(statement: str) -> Asked | None:
    """What is asked for, if Spark is not to be asked."""
    text = statement.strip().rstrip(";").strip()
    for about, form in _FORMS:
        match = form.fullmatch(text)
        if match is not None:
            named = match[1] if form.groups and match[1] else ""
            return Asked(about, tuple(part.strip('"`') for part in re.findall(_PART, named)))
    return None


_CHANGES: Final = re.compile(
    r"\s*(?:insert\s+(?!overwrite\s+(?:local\s+)?directory)|delete\s|update\s|merge\s|truncate\s|(?:drop|alter)\s+table\s)",
    re.IGNORECASE,
)


def changes_a_table(statement: str) -> bool:
    return _CHANGES.match(statement) is not None


def complete(text: str) -> tuple[list[str], str]:
    """Whole statements that end with a semicolon outside quotes, and what is left behind the last."""
    found, begin, quote = [], 0, ""
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character == ";":
            found.append(text[begin:place].strip())
            begin = place + 1
    return [one for one in found if one], text[begin:]
