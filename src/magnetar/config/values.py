# SPDX-License-Identifier: Apache-2.0
"""How the text of a setting becomes a value: its kind, its range and its unit.

Each kind knows what it allows, in words that a person can follow. Never knows keys, files or owners. A text that is
not allowed raises ValueError; the loader says where it stood.
Decides.
"""

import re
from dataclasses import dataclass
from typing import Final, Protocol

WHOLE_MAX: Final = 2**63 - 1

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}(\.[0-9]{0,18})?([eE]-?[0-9]{1,2})?")
_METADATA_SCHEMES: Final = ("embedded:", "memory:", "remote:", "zk:", "etcd:")


class _KeepDefault:
    """Stands for a text that asks for no value of its own: the default remains."""

    def __repr__(self) -> str:
        return "KEEP_DEFAULT"


KEEP_DEFAULT: Final = _KeepDefault()


class Value(Protocol):
    """One kind of value."""

    @property
    def allowed(self) -> str:
        """What may be written, to end the sentence `allowed is …`."""

    def parse(self, text: str) -> object:
        """The value, in the field's unit. ValueError when the text is not allowed."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds in the key's unit; `factor` turns it into the field's unit."""

    least: int = 0
    most: int = WHOLE_MAX
    factor: int = 1
    # Upstream's way of saying "no limit": the default bound remains, because here everything is bounded.
    unlimited: int | None = None

    @property
    def allowed(self) -> str:
        if self.most == WHOLE_MAX:
            span = f"a whole number of at least {self.least}"
        else:
            span = f"a whole number between {self.least} and {self.most}"
        return span if self.unlimited is None else f"{span}, or {self.unlimited} for the default limit"

    def parse(self, text: str) -> object:
        if not _WHOLE.fullmatch(text):
            raise ValueError(text)
        number = int(text)
        if number == self.unlimited:
            return KEEP_DEFAULT
        if not self.least <= number <= self.most:
            raise ValueError(text)
        # -1 says "without limit" in any unit.
        return number if number == -1 else number * self.factor


@dataclass(frozen=True, slots=True)
class Decimal:
    """A number with decimals between two bounds."""

    least: float = 0.0
    most: float = 1e18
    factor: float = 1.0

    @property
    def allowed(self) -> str:
        if self.most == 1e18:
            return f"a number of at least {self.least:g}"
        return f"a number between {self.least:g} and {self.most:g}"

    def parse(self, text: str) -> float:
        if not _DECIMAL.fullmatch(text) or not self.least <= float(text) <= self.most:
            raise ValueError(text)
        return float(text) * self.factor


@dataclass(frozen=True, slots=True)
class IntervalOfRate:
    """So many times per second; the field holds the milliseconds between two times."""

    allowed: str = "a number of times per second between 0.001 and 1000"

    def parse(self, text: str) -> int:
        return round(1000 / Decimal(0.001, 1000.0).parse(text))


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false; `inverted` for a key whose sense is the opposite of the field's."""

    inverted: bool = False
    allowed: str = "true or false"

    def parse(self, text: str) -> bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError(text)
        return (lowered == "true") is not self.inverted


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words, in any case."""

    choices: tuple[tuple[str, object], ...]

    @property
    def allowed(self) -> str:
        return " or ".join(word for word, _ in self.choices)

    def parse(self, text: str) -> object:
        for word, value in self.choices:
            if word.lower() == text.lower():
                return value
        raise ValueError(text)


@dataclass(frozen=True, slots=True)
class Text:
    """Any text on one line."""

    characters_max: int = 4096

    @property
    def allowed(self) -> str:
        return f"text of at most {self.characters_max} characters"

    def parse(self, text: str) -> str:
        if len(text) > self.characters_max or "\n" in text or "\x00" in text:
            raise ValueError(text)
        return text


@dataclass(frozen=True, slots=True)
class Password:
    """A secret, as bytes."""

    allowed: str = "text"

    def parse(self, text: str) -> bytes:
        return text.encode()


@dataclass(frozen=True, slots=True)
class TextList:
    """Texts with commas between them; blanks around each are dropped."""

    items_max: int = 1000

    @property
    def allowed(self) -> str:
        return f"one to {self.items_max} texts with commas between them"

    def parse(self, text: str) -> tuple[str, ...]:
        items = tuple(item.strip() for item in text.split(",") if item.strip())
        if not 0 < len(items) <= self.items_max:
            raise ValueError(text)
        return items


@dataclass(frozen=True, slots=True)
class MetadataUrl:
    """Where metadata lives; bare `host:port` lists mean ZooKeeper, as they do for Pulsar and BookKeeper."""

    allowed: str = "embedded:DIR, memory:, remote:host:port, zk:host:2181/chroot or etcd:http://host:2379"

    def parse(self, text: str) -> str:
        url = text.removeprefix("metadata-store:")
        if url.startswith(_METADATA_SCHEMES):
            return url
        scheme, separator, rest = url.partition("://")
        if separator and (scheme == "zk" or scheme.startswith("zk+")):
            # BookKeeper's form ends in the ledgers' root and separates hosts by semicolons.
            return "zk:" + rest.replace(";", ",").removesuffix("/").removesuffix("/ledgers")
        if not separator and re.fullmatch(r"[\w.\-]+:[0-9]{1,5}(,[\w.\-]+:[0-9]{1,5})*(/[\w/.\-]*)?", url):
            return f"zk:{url}"
        raise ValueError(text)


def value_of_type(annotation: object) -> Value:
    """The widest kind that a field of this type can take: for fields that no upstream key describes better."""
    if annotation is bool:
        return Flag()
    if annotation is int:
        return Whole()
    if annotation is float:
        return Decimal()
    if annotation is str:
        return Text()
    if annotation == tuple[str, ...]:
        return TextList()
    raise TypeError(f"no kind of setting for fields of type {annotation}")
