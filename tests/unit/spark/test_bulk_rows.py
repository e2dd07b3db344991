# SPDX-License-Identifier: Apache-2.0
"""Batches read in bulk give the very columns that reading them message by message gives."""

import base64
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.client.schema_info import BYTES_INFO, SchemaInfo, SchemaType
from magnetar.errors import BadSchema
from magnetar.ids import Position
from magnetar.spark.batch_layout import lay_out
from magnetar.spark.bulk_rows import BulkRows
from magnetar.spark.columns import columns_of
from magnetar.spark.offsets import BEFORE_ALL, Place
from magnetar.spark.options import BadRows, Metadata
from magnetar.spark.rows import RowBuilder
from magnetar.spark.stored_entry import StoredEntry
from magnetar.spark.values import ValueColumns
from magnetar.wire import batch, broker_entry, message
from magnetar.wire.proto import pulsar_api_pb2 as pb

TOPIC = "persistent://public/default/t-partition-3"


def batch_entry(messages: list[tuple[dict[str, Any], bytes]], number: int = 0, first_index: int = 0) -> StoredEntry:
    singles = []
    for fields, payload in messages:
        single = pb.SingleMessageMetadata(payload_size=len(payload))
        for key, value in fields.get("properties", ()):
            single.properties.add(key=key, value=value)
        for name in ("partition_key", "partition_key_b64_encoded", "event_time", "sequence_id", "null_value"):
            if name in fields:
                setattr(single, name, fields[name])
        if fields.get("compacted_out"):
            single.compacted_out = True
        singles.append(batch.BatchedMessage(single, payload))
    metadata = pb.MessageMetadata(
        producer_name=f"p{number}", sequence_id=77, publish_time=1_000 + number, num_messages_in_batch=len(messages)
    )
    front, body = message.join(metadata.SerializeToString(), batch.join(singles))
    last_index = first_index + len(messages) - 1
    return StoredEntry(Position(4, number), broker_entry.encode(2_000, last_index) + front + bytes(body))


TEXT = st.text("abcé", max_size=4)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.lists(st.tuples(TEXT, TEXT), max_size=2),
        "partition_key": st.sampled_from(["", "k1", "k2", "key" * 60]),
        "event_time": st.sampled_from([0, 1, 127, 128, 1_700_000_000_000]),
        "sequence_id": st.integers(0, 2**20),
        "null_value": st.booleans(),
        "compacted_out": st.sampled_from([False] * 9 + [True]),
    },
)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[dict[str, Any], bytes]]:
    """Some alike, some not: runs of one shape, and messages in between that have another."""
    found: list[tuple[dict[str, Any], bytes]] = []
    for _ in range(draw(st.integers(1, 3))):
        fields = draw(MESSAGE)
        size = draw(st.sampled_from([0, 1, 100, 127, 128, 300]))
        first = draw(st.sampled_from([0, 120, 16_380]))
        for number in range(draw(st.sampled_from([1, 2, 5, 40]))):
            fields = {**fields, "sequence_id": first + number} if "sequence_id" in fields else fields
            found.append((fields, bytes([number]) * size))
    return found


def rows_of(
    entries: list[StoredEntry], info: SchemaInfo = BYTES_INFO, start: Place = BEFORE_ALL, end: Place | None = None
) -> list[dict[str, Any]]:
    columns = columns_of(info, Metadata.ALL, BadRows.COLUMN, None)
    builder = RowBuilder(TOPIC, columns, ValueColumns(info, ["value"]), BadRows.COLUMN, 10_000)
    for entry in entries:
        builder.add(entry, start, end or Place(9, 9))
    made = builder.take()
    if made is None:
        return []
    made.validate(full=True)
    found: list[dict[str, Any]] = made.to_pylist()
    return found


def slowly(monkeypatch: pytest.MonkeyPatch, *given: Any, **more: Any) -> list[dict[str, Any]]:
    with monkeypatch.context() as patch:
        patch.setattr(BulkRows, "add", lambda *_: None)
        return rows_of(*given, **more)


@given(st.lists(batches(), min_size=1, max_size=3), st.data())
@settings(max_examples=60, deadline=None)
def test_bulk_and_one_by_one_agree(groups: list[list[tuple[dict[str, Any], bytes]]], data: st.DataObject) -> None:
    entries, index = [], 0
    for number, messages in enumerate(groups):
        entries.append(batch_entry(messages, number, index))
        index += len(messages)
    start = Place(4, 0, data.draw(st.integers(0, len(groups[0]))))
    last = len(groups) - 1
    end = Place(4, last, data.draw(st.integers(0, len(groups[-1]))))
    with pytest.MonkeyPatch.context() as patch:
        expected = slowly(patch, entries, start=start, end=end)
    assert rows_of(entries, start=start, end=end) == expected


@given(batches())
@settings(max_examples=60, deadline=None)
def test_a_layout_finds_every_part(messages: list[tuple[dict[str, Any], bytes]]) -> None:
    payload = bytes(batch_entry(messages).payload)
    layout = lay_out(payload, len(messages))
    assert layout is not None
    split = batch.split(payload, len(messages))
    rows = layout.rows.tolist()
    assert [payload[row[0] : row[1]] for row in rows] == [bytes(one.payload) for one in split]
    assert [payload[row[2] : row[3]].decode() for row in rows] == [one.metadata.partition_key for one in split]
    assert [row[4] for row in rows] == [one.metadata.event_time for one in split]
    pairs = [(pair.key, pair.value) for one in split for pair in one.metadata.properties]
    assert [(payload[a:b].decode(), payload[c:d].decode()) for a, b, c, d in layout.pairs.tolist()] == pairs


@given(st.binary(max_size=60), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_bytes_that_are_no_batch_are_never_laid_out_differently_from_the_slow_way(data: bytes, count: int) -> None:
    layout = lay_out(data, count)
    if layout is None:
        return
    assert [data[a:b] for a, b in layout.rows[:, :2].tolist()] == [bytes(x.payload) for x in batch.split(data, count)]


def test_a_long_run_is_one_comparison() -> None:
    """The numbers of a batch of one shape come from arrays; a walk through each message would take this apart."""
    messages = [({"sequence_id": 200 + number, "event_time": 5_000 + number}, b"x" * 50) for number in range(1_000)]
    payload = bytes(batch_entry(messages).payload)
    layout = lay_out(payload, 1_000)
    assert layout is not None
    assert layout.rows[:, 5].tolist() == [200 + number for number in range(1_000)]
    assert layout.rows[:, 4].tolist() == [5_000 + number for number in range(1_000)]


@pytest.mark.parametrize(
    ("kind", "encoded", "expected"),
    [
        (SchemaType.INT32, [struct.pack(">i", number) for number in (-1, 0, 7)], [-1, 0, 7]),
        (SchemaType.INT64, [struct.pack(">q", number) for number in (2**40, -5, 0)], [2**40, -5, 0]),
        (SchemaType.DOUBLE, [struct.pack(">d", number) for number in (0.5, -2.25, 0.0)], [0.5, -2.25, 0.0]),
        (SchemaType.STRING, [b"a", "grün".encode(), b""], ["a", "grün", ""]),
    ],
)
def test_primitives_are_read_in_bulk(
    kind: SchemaType, encoded: list[bytes], expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = SchemaInfo(kind, kind.name)
    entries = [batch_entry([({}, payload) for payload in encoded])]
    found = rows_of(entries, info)
    assert [row["value"] for row in found] == expected
    assert found == slowly(monkeypatch, entries, info)
    # One bad row among them: the row is told as before.
    bad = [batch_entry([({}, payload) for payload in [*encoded, b"\xff\xfe\xfd"]])]
    assert rows_of(bad, info) == slowly(monkeypatch, bad, info)
    assert rows_of(bad, info)[-1]["__error"]


def test_keys_of_bytes_come_back_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    coded = base64.b64encode(b"\x00\xff").decode()
    entries = [
        batch_entry(
            [({"partition_key": coded, "partition_key_b64_encoded": True}, b"x"), ({"partition_key": "t"}, b"")]
        )
    ]
    found = rows_of(entries)
    assert [row["__key"] for row in found] == [b"\x00\xff", b"t"]
    assert found == slowly(monkeypatch, entries)


def test_bad_rows_fail_in_bulk_as_they_do_alone() -> None:
    info = SchemaInfo(SchemaType.INT32, "INT32")
    columns = columns_of(info, Metadata.NONE, BadRows.FAIL, None)
    builder = RowBuilder(TOPIC, columns, ValueColumns(info, ["value"]), BadRows.FAIL, 100)
    with pytest.raises(BadSchema, match="4:0"):
        builder.add(batch_entry([({}, b"\0\0\0\1"), ({}, b"no")]), BEFORE_ALL, Place(9, 9))
