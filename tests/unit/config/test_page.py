# SPDX-License-Identifier: Apache-2.0
"""docs/configuration.md is in step with the table."""

import re
from dataclasses import dataclass

from magnetar.config.keys import KEYS
from magnetar.config.load import SettingsFile, load_settings
from tools.configuration_page import PAGE, field_comments, page


def test_the_page_is_in_step() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.configuration_page"


def test_every_key_is_on_the_page() -> None:
    text = page()
    assert [key.name for key in KEYS if f"`{key.name}`" not in text] == []


def test_every_key_has_a_meaning() -> None:
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| `")]
    without = [row[0] for row in rows if not row[-1].removesuffix("|").strip()]
    assert without == [], "write a comment above the field, or a line in config/own_meanings.py"


@dataclass(frozen=True, slots=True)
class Example:
    # About first,
    # on two lines.
    first: int = 1
    second: int = 2


def test_comments_above_a_field_are_its_meaning() -> None:
    assert field_comments(Example) == {"first": "About first, on two lines."}


def test_what_the_page_says_of_zero_may_be_asked_for() -> None:
    rows = re.findall(r"^\| `([^`]+)` .* 0: ", page(), re.MULTILINE)
    assert "bookie.entry_log_kept_bytes_max" in rows
    for name in rows:
        load_settings([SettingsFile("zero.conf", f"{name}=0")])
