# SPDX-License-Identifier: Apache-2.0
"""Rows laid out as batches of messages, target by target: tasks stage them, commits publish them as they are.

A message's own metadata is written by hand, byte for byte as protobuf would write it, and without a sequence id, which
belongs to the batch. A target's batches have its rows in their order.
Decides.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from magnetar.wire.varint import encode as varint


class EncodedRow(NamedTuple):
    """One message to be. A payload of None is a null value."""

    payload: bytes | None
    key: str | bytes | None
    event_time_ms: int
    properties: Mapping[str, str]
    topic: str | None


class PackedBatch(NamedTuple):
    """An entry's payload to be, and how many messages are in it."""

    target: str
    payload: bytes
    messages: int


@lru_cache(maxsize=4096)
def plain_front(size: int) -> bytes:
    """What comes before the payload of a message that is nothing but its payload."""
    return _sized(b"\x18" + varint(size))


def front_of(row: EncodedRow) -> bytes:
    """What comes before a row's payload: the size of its metadata, and that."""
    size = 0 if row.payload is None else len(row.payload)
    if row.payload is not None and row.key is None and not row.properties and not row.event_time_ms:
        return plain_front(size)
    parts = []
    for name, value in row.properties.items():
        pair = _text(b"\x0a", name.encode()) + _text(b"\x12", value.encode())
        parts.append(_text(b"\x0a", pair))
    key, is_coded = _written(row.key)
    if key is not None:
        parts.append(_text(b"\x12", key))
    parts.append(b"\x18" + varint(size))
    if row.event_time_ms:
        parts.append(b"\x28" + varint(row.event_time_ms))
    if is_coded:
        parts.append(b"\x30\x01")
    if row.payload is None:
        parts.append(b"\x48\x01")
    return _sized(b"".join(parts))


def text_key(key: str | bytes | None) -> str | None:
    """Keys are read as bytes and are text for most; text stays text, so that it routes and compacts as before."""
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return None
    return key


def _written(key: str | bytes | None) -> tuple[bytes | None, bool]:
    """A key as it travels, and whether it had to be coded for that."""
    text = text_key(key)
    if text is not None:
        return text.encode(), False
    return (base64.b64encode(key), True) if isinstance(key, bytes) else (None, False)


def _sized(metadata: bytes) -> bytes:
    return len(metadata).to_bytes(4, "big") + metadata


def _text(tag: bytes, value: bytes) -> bytes:
    return tag + varint(len(value)) + value


class _Pile:
    __slots__ = ("bytes", "messages", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.messages = 0
        self.bytes = 0


class Packer:
    """Give it rows and take each batch that is full; the rest in the end. What it holds is bounded over all targets."""

    def __init__(self, messages_max: int, bytes_max: int, held_bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._held_bytes_max = held_bytes_max
        self._piles: dict[str, _Pile] = {}
        self._held_bytes = 0

    def add(self, target: str, row: EncodedRow) -> Sequence[PackedBatch]:
        """Returns what had to make room for the row."""
        front, payload = front_of(row), row.payload or b""
        pile, size = self._pile(target), len(front) + len(payload)
        taken: Sequence[PackedBatch] = ()
        if self._held_bytes + size > self._held_bytes_max:
            taken = self.rest()
        elif self._is_full(pile, size):
            taken = (self._taken(target),)
        if taken:
            pile = self._pile(target)
        pile.parts += (front, payload)
        pile.messages += 1
        pile.bytes += size
        self._held_bytes += size
        return taken

    def add_plain(self, target: str, payloads: Iterable[bytes]) -> Iterator[PackedBatch]:
        """Rows that are nothing but payloads, all for one target."""
        if self._held_bytes > self._held_bytes_max:
            yield from self.rest()
        pile = self._pile(target)
        for payload in payloads:
            front = plain_front(len(payload))
            size = len(front) + len(payload)
            if self._is_full(pile, size):
                yield self._taken(target)
                pile = self._pile(target)
            pile.parts += (front, payload)
            pile.messages += 1
            pile.bytes += size
            self._held_bytes += size

    def rest(self) -> list[PackedBatch]:
        """All that is held."""
        return [self._taken(target) for target, pile in list(self._piles.items()) if pile.messages]

    def _pile(self, target: str) -> _Pile:
        found = self._piles.get(target)
        if found is None:
            found = self._piles[target] = _Pile()
        return found

    def _is_full(self, pile: _Pile, size: int) -> bool:
        return pile.messages >= self._messages_max or (pile.messages > 0 and pile.bytes + size > self._bytes_max)

    def _taken(self, target: str) -> PackedBatch:
        pile = self._piles.pop(target)
        self._held_bytes -= pile.bytes
        return PackedBatch(target, b"".join(pile.parts), pile.messages)
