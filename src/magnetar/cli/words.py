# SPDX-License-Identifier: Apache-2.0
"""Commands that look like Pulsar's: which flags they have, what typed words give them, what their help says.

Flags have Pulsar's names, with one dash or two, in any place; `--name value` and `--name=value` are the same. Typer's
own parser cannot take `-etb` beside `-e`, so these commands have this one. Never does what a command says.
Decides.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from magnetar.cli.values import (
    WrongUse,
    boolean_of,
    bytes_of,
    decimal_of,
    instant_of,
    message_id_of,
    millis_of,
    number_of,
    pairs_of,
    seconds_of,
    texts_of,
)

# What was typed, by the names of flags and arguments; a flag that was not typed has its default.
Given: TypeAlias = Mapping[str, Any]

HELP_WIDTH: Final = 100


class Kind(Enum):
    """What a flag takes; the second part is shown in the help."""

    TEXT = "TEXT"
    NUMBER = "NUMBER"
    DECIMAL = "DECIMAL"
    BOOLEAN = "true|false"
    SWITCH = ""
    # A switch that is on until it is typed.
    SWITCH_OFF = " "
    TEXTS = "A,B,…"
    # Typed several times, each as it is.
    REPEATED = "TEXT "
    PAIRS = "NAME=VALUE,…"
    SIZE = "SIZE"
    SECONDS = "TIME"
    MILLIS = "TIME "
    INSTANT = "INSTANT"
    MESSAGE_ID = "LEDGER:ENTRY"

    @property
    def is_switch(self) -> bool:
        return self in (Kind.SWITCH, Kind.SWITCH_OFF)


_READERS: Final[dict[Kind, Callable[[str], Any]]] = {
    Kind.TEXT: str,
    Kind.NUMBER: number_of,
    Kind.DECIMAL: decimal_of,
    Kind.BOOLEAN: boolean_of,
    Kind.TEXTS: texts_of,
    Kind.REPEATED: lambda text: [text],
    Kind.PAIRS: pairs_of,
    Kind.SIZE: bytes_of,
    Kind.SECONDS: seconds_of,
    Kind.MILLIS: millis_of,
    Kind.INSTANT: instant_of,
    Kind.MESSAGE_ID: message_id_of,
}


class Flag(NamedTuple):
    names: tuple[str, ...]
    kind: Kind
    help: str
    is_required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its name in Given: the first long name without dashes."""
        long = next((name for name in self.names if name.startswith("--")), self.names[0])
        return re.sub(r"\W", "_", long.lstrip("-"))

    def read(self, text: str) -> Any:
        try:
            value = _READERS[self.kind](text)
        except WrongUse as error:
            raise WrongUse(f"{self.names[0]}: {error}") from None
        if self.choices:
            return self._chosen(value)
        return value

    def _chosen(self, text: str) -> str:
        for choice in self.choices:
            if choice.lower() == text.lower():
                return choice
        raise WrongUse(f"{self.names[0]}: {text!r} should be one of {', '.join(self.choices)}")


def flag(names: str, kind: Kind, help: str, *, required: bool = False, default: Any = None, choices: str = "") -> Flag:
    """A flag from its names, parted by spaces."""
    if kind is Kind.SWITCH and default is None:
        default = False
    if kind is Kind.SWITCH_OFF:
        default = True
    return Flag(tuple(names.split()), kind, help, required, default, tuple(choices.split()))


class Command(NamedTuple):
    """A command's name, what it takes, and a sentence about it."""

    name: str
    help: str
    arguments: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()

    def read(self, words: Sequence[str], *, more: tuple[Flag, ...] = ()) -> dict[str, Any]:
        """What the words give. WrongUse with one sentence when they do not fit."""
        flags = (*self.flags, *(each for each in more if not _is_taken(each, self.flags)))
        given: dict[str, Any] = {each.key: each.default for each in flags}
        loose: list[str] = []
        typed: dict[str, None] = {}
        for each, text in _pieces(words, {name: one for one in flags for name in one.names}):
            if each is None:
                loose.append(text)
                continue
            value = (each.kind is Kind.SWITCH) if each.kind.is_switch else each.read(text)
            given[each.key] = _joined(given[each.key] if each.key in typed else None, value)
            typed[each.key] = None
        for each in flags:
            if each.is_required and each.key not in typed:
                raise WrongUse(f"{self.name} needs {' or '.join(each.names)} {each.kind.value}".rstrip())
        given.update(self._positional(loose))
        return given

    def _positional(self, loose: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self.arguments:
            optional, many = name.endswith("?"), name.endswith("…")
            key = name.rstrip("?…")
            if many:
                found[key], loose = loose, []
            elif loose:
                found[key] = loose.pop(0)
            elif optional:
                found[key] = None
            else:
                raise WrongUse(f"{self.name} needs {key.upper()}")
        if loose:
            raise WrongUse(f"{self.name} does not take {loose[0]!r}")
        return found

    def help_text(self, path: str, *, more: tuple[Flag, ...] = ()) -> str:
        shown = [name.rstrip("?…").upper() + ("…" if name.endswith("…") else "") for name in self.arguments]
        shown = [f"[{text}]" if self.arguments[i].endswith("?") else text for i, text in enumerate(shown)]
        lines = [f"Usage: {' '.join([path, *shown, '[FLAGS]' if self.flags or more else ''])}".rstrip(), "", self.help]
        for title, flags in (("Flags", self.flags), ("Flags of every command", more)):
            if flags:
                lines += ["", f"{title}:", *(line for each in flags for line in _flag_lines(each))]
        return "\n".join(lines) + "\n"


def _pieces(words: Sequence[str], by_name: dict[str, Flag]) -> Iterator[tuple[Flag | None, str]]:
    """Each flag with its value, each other word alone."""
    rest = iter(words)
    for word in rest:
        if word == "--":
            yield from ((None, each) for each in rest)
            return
        name, equals, value = word.partition("=")
        each = by_name.get(word) or (by_name.get(name) if equals else None)
        if each is None:
            if word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?|-", word):
                raise WrongUse(f"there is no flag {name}{_nearest(name, by_name)}")
            yield None, word
        elif each.kind.is_switch:
            if equals and not boolean_of(value):
                continue
            yield each, ""
        elif equals and each is not by_name.get(word):
            yield each, value
        else:
            following = next(rest, None)
            if following is None:
                raise WrongUse(f"{word} needs a value: {each.kind.value.strip()}")
            yield each, following


def _joined(before: Any, value: Any) -> Any:
    """A list or a set of pairs typed twice is one; of anything else the last one counts."""
    if isinstance(before, list) and isinstance(value, list):
        return before + value
    if isinstance(before, dict) and isinstance(value, dict) and "ledgerId" not in value:
        return {**before, **value}
    return value


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"; did you mean {near[0]}?" if near else "; --help shows those there are"


def _is_taken(each: Flag, by: tuple[Flag, ...]) -> bool:
    return any(name in other.names for other in by for name in each.names)


def _flag_lines(each: Flag) -> list[str]:
    head = f"  {', '.join(each.names)} {each.kind.value.strip()}".rstrip()
    notes = [each.help]
    if each.choices:
        notes.append(f"One of {', '.join(each.choices)}.")
    if each.is_required:
        notes.append("Required.")
    elif each.default not in (None, False, True, ""):
        notes.append(f"[default: {each.default}]")
    text = textwrap.wrap(" ".join(notes), HELP_WIDTH - 8)
    return [head, *(f"        {line}" for line in text)]
