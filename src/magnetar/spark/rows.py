# SPDX-License-Identifier: Apache-2.0
"""From stored entries to Arrow record batches, column by column.

Only the columns that are asked for are built. Batches of messages go to `bulk_rows.py` whole; what that refuses, and
messages that are not batched, are built row by row, and so is every row that cannot be read. Never waits, and holds at
most one record batch and one batch of messages.
Decides.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from magnetar.client.incoming import decompressed
from magnetar.errors import BadPayload, BadSchema, CryptoFailed, MagnetarError
from magnetar.ids import MessageId
from magnetar.names import TopicName
from magnetar.spark.bulk_rows import BulkRows
from magnetar.spark.columns import ERROR, METADATA_NAMES
from magnetar.spark.offsets import Place
from magnetar.spark.options import BadRows
from magnetar.spark.stored_entry import StoredEntry
from magnetar.spark.values import Buffer, ValueColumns
from magnetar.wire import batch
from magnetar.wire.proto import pulsar_api_pb2 as pb

PAYLOAD_BYTES_MAX: Final = 2**31 - 1
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
# What Arrow says of a value that a column cannot hold.
_MISFIT: Final = (pa.ArrowException, OverflowError)

Single = pb.SingleMessageMetadata | pb.MessageMetadata


def arrow_schema(columns: spark.StructType) -> pa.Schema:
    return to_arrow_schema(columns, timezone="UTC")


class RowBuilder:
    """Given entries in turn, gives record batches when they are full, and the rest at the end."""

    def __init__(
        self, topic: str, columns: spark.StructType, values: ValueColumns, bad_rows: BadRows, rows_max: int
    ) -> None:
        name = TopicName.parse(topic)
        self._topic = str(name.base) if name.is_partition else topic
        self._partition = name.partition_index
        self._schema = arrow_schema(columns)
        self._values = values
        self._bad_rows = bad_rows
        self._rows_max = rows_max
        self._columns: dict[str, list[Any]] = {field.name: [] for field in columns.fields}
        self._described = [name for name in self._columns if name in METADATA_NAMES]
        self._wants_error = ERROR in self._columns
        # Which messages the rows are, in case one turns out to be bad when its column is made.
        self._ids: list[MessageId] = []
        self._rows = 0
        self._bytes = 0
        self._bulk = BulkRows(name, self._schema, values)
        # What is built already, in order; the rows of only one of the two builders come behind it.
        self._pieces: list[pa.RecordBatch] = []
        self._piece_rows = 0
        self._piece_bytes = 0
        self.dropped = 0

    @property
    def is_full(self) -> bool:
        rows = self._rows + self._bulk.rows + self._piece_rows
        return rows >= self._rows_max or self._bytes + self._bulk.bytes + self._piece_bytes >= BATCH_BYTES_MAX

    def add(self, entry: StoredEntry, start: Place, end: Place, payload: Buffer | None = None) -> int:
        """The messages of an entry that lie behind `start` and up to `end`; returns how many.

        `payload` is given for a message that came in chunks. Raises as the options say of bad rows.
        """
        if entry.is_batch and payload is None and not len(entry.metadata.encryption_keys):
            in_bulk = self._add_batch(entry, start, end)
            if in_bulk is not None:
                return in_bulk
        self._keep(self._bulk.take())
        added = 0
        try:
            for index, single, data in self._messages(entry, payload):
                if not start.covers(entry.position, index) and end.covers(entry.position, index):
                    self._add_row(entry, index, single, data)
                    added += 1
        except (BadPayload, CryptoFailed) as error:
            self._add_bad_entry(entry, error)
            added += 1
        return added

    def _add_batch(self, entry: StoredEntry, start: Place, end: Place) -> int | None:
        first = (start.messages or 0) if entry.position == start.position else 0
        until = entry.messages
        if entry.position == end.position and end.messages is not None:
            until = min(until, end.messages)
        try:
            payload = decompressed(entry.metadata, entry.payload, PAYLOAD_BYTES_MAX)
        except BadPayload:
            return None
        if self._rows:
            self._keep(self._built())
        return self._bulk.add(entry, payload, first, until)

    def _messages(self, entry: StoredEntry, whole: Buffer | None) -> Iterator[tuple[int, Single, Buffer]]:
        metadata = entry.metadata
        if len(metadata.encryption_keys):
            raise CryptoFailed("the message is encrypted, and this source has no keys")
        payload = decompressed(metadata, entry.payload if whole is None else whole, PAYLOAD_BYTES_MAX)
        if not entry.is_batch:
            yield -1, metadata, payload
            return
        for index, one in enumerate(batch.split(payload, entry.messages)):
            if not one.metadata.compacted_out:
                yield index, one.metadata, one.payload

    def _add_row(self, entry: StoredEntry, index: int, single: Single, data: Buffer) -> None:
        values = self._values
        error: str | None = None
        if values.names:
            row: list[Any]
            if single.null_value:
                row = [None] * len(values.names)
            elif values.is_plain:
                row = [bytes(data)]
            else:
                try:
                    row = values.read(data, key_of(single), entry.metadata.schema_version)
                except BadSchema as failure:
                    if self._bad_rows is BadRows.FAIL:
                        raise BadSchema(f"{self._topic}: message {_id(entry, index, -1)}: {failure}") from failure
                    if self._bad_rows is BadRows.DROP:
                        self.dropped += 1
                        return
                    row, error = [None] * len(values.names), str(failure)
            for name, value in zip(values.names, row, strict=True):
                self._columns[name].append(value)
        if self._wants_error:
            self._columns[ERROR].append(error)
        self._describe(entry, index, single)
        self._ids.append(_id(entry, index, -1))
        self._rows += 1
        self._bytes += len(data)

    def _add_bad_entry(self, entry: StoredEntry, error: MagnetarError) -> None:
        if self._bad_rows is BadRows.FAIL:
            raise type(error)(f"{self._topic}: entry {_id(entry, -1, -1)}: {error}") from error
        if self._bad_rows is BadRows.DROP:
            self.dropped += entry.messages
            return
        for name in self._values.names:
            self._columns[name].append(None)
        if self._wants_error:
            self._columns[ERROR].append(str(error))
        self._describe(entry, -1, entry.metadata)
        self._ids.append(_id(entry, -1, -1))
        self._rows += 1

    def _describe(self, entry: StoredEntry, index: int, single: Single) -> None:
        columns = self._columns
        for name in self._described:
            columns[name].append(self._described_as(name, entry, index, single))

    def _described_as(self, name: str, entry: StoredEntry, index: int, single: Single) -> Any:
        match name:
            case "__topic":
                return self._topic
            case "__publishTime":
                return entry.metadata.publish_time * 1000
            case "__key":
                return key_of(single)
            case "__messageId":
                return _id(entry, index, self._partition).encode()
            case "__eventTime":
                return single.event_time * 1000 if single.event_time else None
            case "__messageProperties":
                return [(pair.key, pair.value) for pair in single.properties]
            case "__partition":
                return max(0, self._partition)
            case "__index":
                return None if entry.first_index is None else entry.first_index + max(0, index)
            case "__sequenceId":
                return single.sequence_id if single.HasField("sequence_id") else entry.metadata.sequence_id
            case "__producerName":
                return entry.metadata.producer_name
        return None  # __redeliveryCount: a direct read is no delivery

    def take(self) -> pa.RecordBatch | None:
        """What was added since the last one; None if nothing was."""
        self._keep(self._bulk.take())
        self._keep(self._built())
        pieces, self._pieces = self._pieces, []
        self._piece_rows = self._piece_bytes = 0
        if len(pieces) < 2:
            return pieces[0] if pieces else None
        (whole,) = pa.Table.from_batches(pieces).combine_chunks().to_batches()
        return whole

    def _keep(self, made: pa.RecordBatch | None) -> None:
        if made is not None:
            self._pieces.append(made)
            self._piece_rows += made.num_rows
            self._piece_bytes += made.nbytes

    def _built(self) -> pa.RecordBatch | None:
        if not self._rows:
            return None
        try:
            arrays = self._arrays()
        except _MISFIT:
            self._settle_misfits()
            arrays = self._arrays()
        for name in self._columns:
            self._columns[name] = []
        self._ids = []
        self._rows = self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _arrays(self) -> list[pa.Array]:
        return [pa.array(self._columns[field.name], type=field.type) for field in self._schema]

    def _settle_misfits(self) -> None:
        """Rows with a value that is not of its column's type: text that is written without quotes is taken as it is,
        all else is a bad row. Looked for only where Arrow refused a whole column."""
        bad: dict[int, str] = {}
        for field in self._schema:
            if field.name not in self._values.names:
                continue
            column = self._columns[field.name]
            for row, value in enumerate(column):
                try:
                    pa.array([value], type=field.type)
                except _MISFIT:
                    if pa.types.is_string(field.type) and isinstance(value, int | float):
                        column[row] = json.dumps(value)
                    else:
                        bad[row] = f"field {field.name} is {repr(value)[:60]}, which is no {field.type}"
        if bad and self._bad_rows is BadRows.FAIL:
            row = min(bad)
            raise BadSchema(f"{self._topic}: message {self._ids[row]}: {bad[row]}")
        for row in sorted(bad, reverse=True):
            if self._bad_rows is BadRows.DROP:
                for values in self._columns.values():
                    del values[row]
                self.dropped += 1
                continue
            for name in self._values.names:
                self._columns[name][row] = None
            if self._wants_error:
                self._columns[ERROR][row] = bad[row]


def key_of(single: Single) -> bytes | None:
    if not single.HasField("partition_key"):
        return None
    key = single.partition_key
    return base64.b64decode(key) if single.partition_key_b64_encoded else key.encode()


def _id(entry: StoredEntry, index: int, partition: int) -> MessageId:
    return MessageId(*entry.position, partition, index, entry.messages if entry.is_batch else 0)
