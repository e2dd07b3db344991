# SPDX-License-Identifier: Apache-2.0
"""Where the parts of a batch's messages lie, as numbers in arrays: no object is made for a message.

Messages that follow each other in the same shape (the same fields, each as long as in the one before) are found by one
comparison of arrays; the others are walked one by one. A batch that is unusual in any way is not laid out at all, and
whoever asked reads it message by message: `wire.batch.split` is the slow twin, and both must agree. Where `lay_out` is
compiled (`native/_rows.pyx`) it walks every message.
Decides.
"""

from array import array
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from magnetar.spark import spans
from magnetar.wire import compiled

Numbers: TypeAlias = "NDArray[np.int64]"

# The columns of a layout: one row for each message.
PAYLOAD_START: Final = 0
PAYLOAD_END: Final = 1
KEY_START: Final = 2
KEY_END: Final = 3
EVENT_TIME: Final = 4
SEQUENCE_ID: Final = 5
FLAGS: Final = 6
PROPERTIES: Final = 7
_WIDTH: Final = 8
_PLACES: Final = (PAYLOAD_START, PAYLOAD_END, KEY_START, KEY_END)

NO_SEQUENCE_ID: Final = -1
IS_NULL: Final = 1
KEY_IS_BASE64: Final = 2
IS_COMPACTED_OUT: Final = 4
HAS_KEY: Final = 8

_SIZE_BYTES: Final = 4
_RUN_MIN: Final = 4
_PROBE: Final = 16
_PATIENCE_MAX: Final = 256
_VARINT_BYTES_MAX: Final = 9
"""More are beyond what a signed number holds."""

_PAIR: Final = 0x0A
_KEY: Final = 0x12
_PAYLOAD_SIZE: Final = 0x18
_EVENT_TIME: Final = 0x28
_ORDERING_KEY: Final = 0x3A
_SEQUENCE_ID: Final = 0x40
_NULL_PARTITION_KEY: Final = 0x50
_FLAG_OF: Final = {0x20: IS_COMPACTED_OUT, 0x30: KEY_IS_BASE64, 0x48: IS_NULL}


class Unusual(Exception):
    """These bytes are not what producers write; nothing is said about what is wrong with them."""


class BatchLayout:
    """Rows of numbers, places counted from the first byte of all; `pairs` holds four places for each property."""

    __slots__ = ("pairs", "rows")

    def __init__(self, rows: Numbers, pairs: Numbers) -> None:
        self.rows = rows
        self.pairs = pairs


def lay_out_plainly(data: bytes, count: int, start: int = 0) -> BatchLayout | None:
    """The layout of `count` messages, decompressed, from a byte on; None where it is unusual."""
    try:
        return _Walk(data).all(count, start)
    except (Unusual, IndexError, OverflowError):
        return None


lay_out = lay_out_plainly


class _Walk:
    __slots__ = ("_data", "_event_time", "_row", "_sequence_id", "_values")

    def __init__(self, data: bytes) -> None:
        self._data = data
        # Of the message that was walked last: its numbers, and where the two varints lie that differ in a run.
        self._row: tuple[int, ...] = ()
        self._values: array[int] = array("q")
        self._sequence_id = (0, 0)
        self._event_time = (0, 0)

    def all(self, count: int, start: int) -> BatchLayout:
        blocks: list[Numbers] = []
        pair_blocks: list[Numbers] = []
        rows: array[int] = array("q")
        pairs: array[int] = array("q")
        position, left = start, count
        wait, patience = 0, 1
        while left:
            if self._values:
                self._values = array("q")
            until = self._message(position)
            length = 0
            if wait:
                wait -= 1
            elif left > _RUN_MIN:
                length = self._run(position, until, left)
            if length < _RUN_MIN:
                if not wait and left > _RUN_MIN and length:
                    wait, patience = patience, min(_PATIENCE_MAX, patience * 2)
                rows.extend(self._row)
                pairs.extend(self._values)
                position, left = until, left - 1
                continue
            patience = 1
            _flush(rows, blocks, _WIDTH)
            _flush(pairs, pair_blocks, 4)
            block, pair_block = self._rows_of_run(position, until, length)
            blocks.append(block)
            pair_blocks.append(pair_block)
            rows, pairs = array("q"), array("q")
            position += length * (until - position)
            left -= length
        _flush(rows, blocks, _WIDTH)
        _flush(pairs, pair_blocks, 4)
        empty = np.zeros((0, 4), np.int64)
        return BatchLayout(_joined(blocks, np.zeros((0, _WIDTH), np.int64)), _joined(pair_blocks, empty))

    def _message(self, position: int) -> int:
        """Walk one message; returns where the next begins."""
        data = self._data
        at = position + _SIZE_BYTES
        until = at + int.from_bytes(data[position:at], "big")
        size = sequence_id = -1
        key_start = key_end = flags = event_time = pairs = 0
        while at < until:
            tag = data[at]
            begin = at = at + 1
            value = data[at]
            at += 1
            if value > 127:
                value, at = _long(data, begin)
            if tag == _PAYLOAD_SIZE:
                size = value
            elif tag == _SEQUENCE_ID:
                sequence_id = value
                self._sequence_id = (begin, at)
            elif tag == _EVENT_TIME:
                event_time = value
                self._event_time = (begin, at)
            elif tag == _KEY:
                key_start, at = at, at + value
                key_end = at
                flags |= HAS_KEY
            elif tag == _PAIR:
                self._pair(at, at + value)
                at += value
                pairs += 1
            elif tag in _FLAG_OF:
                flags = flags | _FLAG_OF[tag] if value else flags & ~_FLAG_OF[tag]
            elif tag == _ORDERING_KEY:
                at += value
            elif tag != _NULL_PARTITION_KEY:
                raise Unusual
        end = until + size
        if at != until or not 0 <= size < 2**31 or end > len(data):
            raise Unusual
        if not flags & HAS_KEY:
            key_start = key_end = until
        self._row = (until, end, key_start, key_end, event_time, sequence_id, flags, pairs)
        return end

    def _pair(self, at: int, until: int) -> None:
        """One property: a key and a value, both short fields in this order."""
        data = self._data
        places: list[int] = []
        for tag in (0x0A, 0x12):
            if data[at] != tag:
                raise Unusual
            length = data[at + 1]
            at += 2
            if length > 127:
                length, at = _long(data, at - 1)
            places += (at, at + length)
            at += length
        if at != until:
            raise Unusual
        self._values.extend(places)

    # --- runs ------------------------------------------------------------------------------------------

    def _run(self, position: int, until: int, left: int) -> int:
        """How many messages from `position` on, the walked one included, have its shape."""
        stride = until - position
        possible = min(left, (len(self._data) - position) // stride)
        if possible < _RUN_MIN:
            return 1
        mask = self._mask(position)
        length = self._same(position, stride, min(possible, _PROBE), mask)
        if length == _PROBE < possible:
            length = self._same(position, stride, possible, mask)
        return length

    def _same(self, position: int, stride: int, count: int, mask: "NDArray[np.uint8]") -> int:
        whole = np.frombuffer(self._data, np.uint8, count * stride, position).reshape(count, stride)
        differs = np.zeros(count, np.uint8)
        # Column by column: a reduction along so short an axis would take longer.
        for column in np.flatnonzero(mask).tolist():
            differs |= (whole[:, column] ^ whole[0, column]) & mask[column]
        different = np.flatnonzero(differs)
        return int(different[0]) if len(different) else count

    def _mask(self, position: int) -> "NDArray[np.uint8]":
        """Which bits of a message's front must be the same in all of a run: all but what its fields contain."""
        row = self._row
        mask = np.full(row[PAYLOAD_START] - position, 0xFF, np.uint8)
        for begin, end in self._changing():
            mask[begin - position : end - position] = 0x80
        contents = [(row[KEY_START], row[KEY_END])] if row[FLAGS] & HAS_KEY else []
        values = self._values
        contents += [(values[at], values[at + 1]) for at in range(0, len(values), 2)]
        for begin, end in contents:
            mask[begin - position : end - position] = 0
        return mask

    def _changing(self) -> list[tuple[int, int]]:
        found = []
        if self._row[SEQUENCE_ID] >= 0:
            found.append(self._sequence_id)
        if self._row[EVENT_TIME]:
            found.append(self._event_time)
        return found

    def _rows_of_run(self, position: int, until: int, length: int) -> tuple[Numbers, Numbers]:
        stride = until - position
        steps = np.arange(length, dtype=np.int64) * stride
        block = np.empty((length, _WIDTH), np.int64)
        block[:] = self._row
        block[:, : len(_PLACES)] += steps[:, None]
        whole = np.frombuffer(self._data, np.uint8, length * stride, position).reshape(length, stride)
        if self._row[SEQUENCE_ID] >= 0:
            block[:, SEQUENCE_ID] = _numbers(whole, self._sequence_id, position)
        if self._row[EVENT_TIME]:
            block[:, EVENT_TIME] = _numbers(whole, self._event_time, position)
        places = np.array(self._values, np.int64)
        pairs = (places[None, :] + steps[:, None]).reshape(-1, 4)
        return block, pairs


def _numbers(whole: "NDArray[np.uint8]", span: tuple[int, int], position: int) -> Numbers:
    """The varints of a column, all of the same length."""
    begin, end = span[0] - position, span[1] - position
    found = np.zeros(len(whole), np.int64)
    for shift, column in enumerate(range(begin, end)):
        found |= (whole[:, column].astype(np.int64) & 0x7F) << (7 * shift)
    return found


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A varint of several bytes, and where it ends."""
    value = shift = 0
    for _ in range(_VARINT_BYTES_MAX):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Unusual


def _flush(numbers: "array[int]", blocks: list[Numbers], width: int) -> None:
    if numbers:
        blocks.append(np.frombuffer(numbers, np.int64).reshape(-1, width))


def _joined(blocks: list[Numbers], nothing: Numbers) -> Numbers:
    if not blocks:
        return nothing
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


if (_twins := compiled.load(spans.MODULE)) is not None:
    _compiled = _twins.lay_out

    def lay_out(data: bytes, count: int, start: int = 0) -> BatchLayout | None:
        """As `lay_out_plainly`."""
        found = _compiled(data, count, start)
        if found is None:
            return None
        rows, pairs = found
        return BatchLayout(
            np.frombuffer(rows, np.int64).reshape(-1, _WIDTH), np.frombuffer(pairs, np.int64).reshape(-1, 4)
        )
