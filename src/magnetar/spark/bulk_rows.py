# SPDX-License-Identifier: Apache-2.0
"""Whole batches of messages as Arrow columns, by their layouts: no Python object per message.

Payloads and keys are cut out of the batches' bytes by Arrow itself; what an entry says of all its messages is repeated.
Takes a batch whole or not at all; `rows.py` builds what this refuses row by row, and both give the same columns.
Decides.
"""

import base64
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from magnetar.client.schema_info import SchemaType
from magnetar.errors import BadSchema
from magnetar.ids import MessageId
from magnetar.names import TopicName
from magnetar.spark import batch_layout, spans
from magnetar.spark.batch_layout import BatchLayout, Numbers
from magnetar.spark.columns import ERROR, METADATA_NAMES
from magnetar.spark.stored_entry import StoredEntry
from magnetar.spark.values import Buffer, ValueColumns
from magnetar.wire.varint import encode as varint

Array: TypeAlias = "pa.Array[Any]"

DATA_BYTES_MAX: Final = 2**31 - 1
"""Arrow's usual binary columns count bytes with 31 bits."""

_WIDE: Final[dict[SchemaType, str]] = {
    SchemaType.INT8: ">i1",
    SchemaType.INT16: ">i2",
    SchemaType.INT32: ">i4",
    SchemaType.INT64: ">i8",
    SchemaType.FLOAT: ">f4",
    SchemaType.DOUBLE: ">f8",
}


class _Piece:
    """The messages of one entry that are wanted."""

    __slots__ = ("data", "entry", "first", "ids", "keys", "properties", "rows", "values")

    def __init__(self, entry: StoredEntry, data: bytes, rows: Numbers, first: int) -> None:
        self.entry = entry
        self.data = data
        self.rows = rows
        self.first = first
        self.values: list[list[Any]] | Array | None = None
        self.keys: Array | None = None
        self.properties: Array | None = None
        self.ids: Array | None = None

    @property
    def payloads(self) -> spans.Piece:
        return self.data, self.rows[:, batch_layout.PAYLOAD_START : batch_layout.PAYLOAD_END + 1]

    @property
    def key_spans(self) -> spans.Piece:
        return self.data, self.rows[:, batch_layout.KEY_START : batch_layout.KEY_END + 1]

    def has(self, flag: int) -> "NDArray[np.bool_]":
        """Which messages have it."""
        found: NDArray[np.bool_] = (self.rows[:, batch_layout.FLAGS] & flag) != 0
        return found


class BulkRows:
    """Given batches in turn, gives one record batch of them all."""

    def __init__(self, topic: TopicName, schema: pa.Schema, values: ValueColumns) -> None:
        self._topic = str(topic.base)
        self._partition = topic.partition_index
        self._schema = schema
        self._values = values
        self._wide = _WIDE.get(values.primitive) if values.primitive is not None else None
        self._is_text = values.primitive is SchemaType.STRING
        self._names = frozenset(schema.names)
        self._pieces: list[_Piece] = []
        self._batch_indices: Array = pa.array([], pa.binary())
        self.rows = 0
        self.bytes = 0

    def add(self, entry: StoredEntry, payload: Buffer, first: int, until: int) -> int | None:
        """Messages first..until of a batch (decompressed); returns how many. None: it is left to others."""
        data, start = _whole(entry, payload)
        if self.bytes + len(data) > DATA_BYTES_MAX:
            return None
        layout = batch_layout.lay_out(data, entry.messages, start)
        if layout is None or (layout.rows[:, batch_layout.FLAGS] & batch_layout.IS_COMPACTED_OUT).any():
            return None
        piece = _Piece(entry, data, layout.rows[first:until], first)
        if not len(piece.rows):
            return 0
        try:
            self._read(piece)
            self._describe(piece, layout, first, until)
        except (BadSchema, pa.ArrowInvalid, ValueError):
            return None
        self._pieces.append(piece)
        self.bytes += len(data)
        self.rows += len(piece.rows)
        return len(piece.rows)

    # --- one entry ---------------------------------------------------------------------------------------

    def _read(self, piece: _Piece) -> None:
        """What of the values must be known to be good before the batch is taken."""
        values, rows = self._values, piece.rows
        if not values.names or values.is_plain:
            return
        if piece.has(batch_layout.IS_NULL).any():
            raise BadSchema("a value that is null is no value of the type")
        if self._wide is not None:
            sizes = rows[:, batch_layout.PAYLOAD_END] - rows[:, batch_layout.PAYLOAD_START]
            if (sizes != np.dtype(self._wide).itemsize).any():
                raise BadSchema("a payload is not as long as the type")
        elif self._is_text:
            piece.values = spans.column([piece.payloads]).cast(pa.string())
        else:
            piece.values = self._decoded(piece)

    def _decoded(self, piece: _Piece) -> list[list[Any]]:
        version, data = piece.entry.metadata.schema_version, piece.data
        read = self._values.read
        if self._values.wants_key:
            keys = self._keys(piece).to_pylist()
            bounds = piece.rows[:, :2].tolist()
            return [read(data[a:b], key, version) for (a, b), key in zip(bounds, keys, strict=True)]
        return [read(data[a:b], None, version) for a, b in piece.rows[:, :2].tolist()]

    def _keys(self, piece: _Piece) -> Array:
        found = _key_column([piece])
        is_coded = piece.has(batch_layout.KEY_IS_BASE64)
        if not is_coded.any():
            return found
        return pa.array(
            [
                base64.b64decode(key) if coded and key is not None else key
                for key, coded in zip(found.to_pylist(), is_coded.tolist(), strict=True)
            ],
            pa.binary(),
        )

    def _describe(self, piece: _Piece, layout: BatchLayout, first: int, until: int) -> None:
        if "__key" in self._names and piece.has(batch_layout.KEY_IS_BASE64).any():
            piece.keys = self._keys(piece)
        if "__messageProperties" in self._names and len(layout.pairs):
            field = self._schema.field("__messageProperties")
            piece.properties = _properties(layout, piece.data, first, until, field)
        if "__messageId" in self._names:
            piece.ids = self._ids(piece.entry, first, first + len(piece.rows))

    def _ids(self, entry: StoredEntry, first: int, until: int) -> Array:
        """Message ids as clients serialise them: an entry's ids differ in the batch index alone."""
        if len(self._batch_indices) < entry.messages:
            self._batch_indices = pa.array([b"\x20" + varint(index) for index in range(entry.messages)], pa.binary())
        front = pa.scalar(MessageId(*entry.position, self._partition).encode(), pa.binary())
        size = pa.scalar(b"\x30" + varint(entry.messages), pa.binary())
        indices = self._batch_indices.slice(first, until - first)
        return pc.binary_join_element_wise(front, indices, size, pa.scalar(b"", pa.binary()))

    # --- all of them -------------------------------------------------------------------------------------

    def take(self) -> pa.RecordBatch | None:
        """What was added since the last time; None if nothing was."""
        if not self.rows:
            return None
        pieces = self._pieces
        counts = np.array([len(piece.rows) for piece in pieces])
        arrays = [self._column(field, counts) for field in self._schema]
        self._pieces = []
        self.rows = self.bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: "pa.Field[Any]", counts: "NDArray[np.int64]") -> Array:
        if field.name == ERROR:
            return pa.nulls(self.rows, field.type)
        if field.name not in METADATA_NAMES:
            return self._value_column(field)
        return self._metadata_column(field, counts)

    def _value_column(self, field: "pa.Field[Any]") -> Array:
        pieces = self._pieces
        if self._is_text:
            return _joined([piece.values for piece in pieces])
        if not self._values.is_plain and self._wide is None:
            at = self._values.names.index(field.name)
            return pa.array([row[at] for piece in pieces for row in piece.values or ()], field.type)
        nulls = np.concatenate([piece.has(batch_layout.IS_NULL) for piece in pieces])
        found = spans.column([piece.payloads for piece in pieces], nulls if nulls.any() else None)
        if self._wide is None:
            return found
        numbers = np.frombuffer(found.buffers()[2], self._wide, self.rows)
        return pa.array(numbers.astype(numbers.dtype.newbyteorder("=")), field.type)

    def _metadata_column(self, field: "pa.Field[Any]", counts: "NDArray[np.int64]") -> Array:
        pieces, rows = self._pieces, self.rows
        match field.name:
            case "__topic":
                return pa.repeat(pa.scalar(self._topic, field.type), rows)
            case "__partition":
                return pa.repeat(pa.scalar(max(0, self._partition), field.type), rows)
            case "__publishTime":
                times = np.array([piece.entry.metadata.publish_time * 1000 for piece in pieces], np.int64)
                return pa.array(np.repeat(times, counts)).view(field.type)
            case "__producerName":
                names = pa.array([piece.entry.metadata.producer_name for piece in pieces], field.type)
                return names.take(pa.array(np.repeat(np.arange(len(pieces)), counts)))
            case "__key":
                if all(piece.keys is None for piece in pieces):
                    return _key_column(pieces)
                return _joined([self._keys(piece) if piece.keys is None else piece.keys for piece in pieces])
            case "__messageId":
                return _joined([piece.ids for piece in pieces])
            case "__messageProperties":
                none = [_no_properties(len(piece.rows), field) for piece in pieces if piece.properties is None]
                if len(none) == len(pieces):
                    return _no_properties(rows, field)
                following = iter(none)
                return _joined([next(following) if one.properties is None else one.properties for one in pieces])
            case "__eventTime":
                times = np.concatenate([piece.rows[:, batch_layout.EVENT_TIME] for piece in pieces])
                return pa.array(times * 1000, mask=times == 0).view(field.type)
            case "__sequenceId":
                return pa.array(np.concatenate([_sequence_ids(piece) for piece in pieces]))
            case "__index":
                return _joined([_indices(piece, field) for piece in pieces])
        return pa.nulls(rows, field.type)  # __redeliveryCount: a direct read is no delivery


def _sequence_ids(piece: _Piece) -> Numbers:
    found = piece.rows[:, batch_layout.SEQUENCE_ID]
    return np.where(found == batch_layout.NO_SEQUENCE_ID, piece.entry.metadata.sequence_id, found)


def _indices(piece: _Piece, field: "pa.Field[Any]") -> Array:
    if piece.entry.first_index is None:
        return pa.nulls(len(piece.rows), field.type)
    begin = piece.entry.first_index + piece.first
    return pa.array(np.arange(begin, begin + len(piece.rows), dtype=np.int64))


def _whole(entry: StoredEntry, payload: Buffer) -> tuple[bytes, int]:
    """The bytes that a payload is in, and where it begins: a stored entry ends with it, and needs not be copied."""
    if isinstance(payload, bytes):
        return payload, 0
    owner = payload.obj
    if payload is entry.payload and isinstance(owner, bytes):
        return owner, len(owner) - len(payload)
    return bytes(payload), 0


def _key_column(pieces: list[_Piece]) -> Array:
    """Keys as they are written; null where there is none."""
    has_key = np.concatenate([piece.has(batch_layout.HAS_KEY) for piece in pieces])
    if not has_key.any():
        return pa.nulls(len(has_key), pa.binary())
    return spans.column([piece.key_spans for piece in pieces], None if has_key.all() else ~has_key)


def _properties(layout: BatchLayout, data: bytes, first: int, until: int, field: "pa.Field[Any]") -> Array:
    counts = layout.rows[:, batch_layout.PROPERTIES]
    ends = np.cumsum(counts)
    begin = int(ends[first - 1]) if first else 0
    wanted = counts[first:until]
    pairs = layout.pairs[begin : begin + int(wanted.sum())]
    offsets = np.concatenate(([0], np.cumsum(wanted))).astype(np.int32)
    if not len(pairs):
        return _no_properties(len(wanted), field)
    keys = spans.column([(data, pairs[:, :2])]).cast(pa.string())
    values = spans.column([(data, pairs[:, 2:])]).cast(pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values, type=field.type)


def _no_properties(rows: int, field: "pa.Field[Any]") -> Array:
    nothing = pa.array([], pa.string())
    return pa.MapArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), nothing, nothing, type=field.type)


def _joined(arrays: list[Any]) -> Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
