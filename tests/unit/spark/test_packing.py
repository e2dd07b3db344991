# SPDX-License-Identifier: Apache-2.0
"""Packed batches are what protobuf would write, come apart as they were put together, and stay within their bounds."""

import base64
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.spark.packing import EncodedRow, PackedBatch, Packer, front_of, plain_front
from magnetar.wire import batch
from magnetar.wire.proto import pulsar_api_pb2 as pb

text = st.text(max_size=8)
rows = st.builds(
    EncodedRow,
    payload=st.one_of(st.none(), st.binary(max_size=40)),
    key=st.one_of(st.none(), text, st.binary(max_size=8)),
    event_time_ms=st.integers(0, 2**60),
    properties=st.dictionaries(text, text, max_size=3),
    topic=st.none(),
)


def by_protobuf(row: EncodedRow) -> bytes:
    """The stupid twin."""
    single = pb.SingleMessageMetadata(payload_size=len(row.payload or b""))
    for name, value in row.properties.items():
        single.properties.add(key=name, value=value)
    if isinstance(row.key, str):
        single.partition_key = row.key
    elif row.key is not None:
        try:
            single.partition_key = row.key.decode()
        except UnicodeDecodeError:
            single.partition_key = base64.b64encode(row.key).decode()
            single.partition_key_b64_encoded = True
    if row.event_time_ms:
        single.event_time = row.event_time_ms
    if row.payload is None:
        single.null_value = True
    written = single.SerializeToString()
    return len(written).to_bytes(4, "big") + written


@pytest.mark.feature("F-SPK-06")
@given(rows)
def test_a_rows_metadata_is_what_protobuf_writes(row: EncodedRow) -> None:
    assert front_of(row) == by_protobuf(row)


def opened(packed: list[PackedBatch]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = defaultdict(list)
    for one in packed:
        found[one.target] += [bytes(single.payload) for single in batch.split(one.payload, one.messages)]
    return found


@pytest.mark.feature("F-SPK-06")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=30)), max_size=60), st.booleans())
def test_every_targets_rows_come_in_their_order_within_the_bounds(sent: list[tuple[str, bytes]], plain: bool) -> None:
    packer, packed = Packer(messages_max=5, bytes_max=80, held_bytes_max=150), list[PackedBatch]()
    for target, payload in sent:
        if plain:
            packed += packer.add_plain(target, [payload])
        else:
            packed += packer.add(target, EncodedRow(payload, None, 0, {}, None))
    packed += packer.rest()
    expected: dict[str, list[bytes]] = defaultdict(list)
    for target, payload in sent:
        expected[target].append(payload)
    assert opened(packed) == expected
    assert all(0 < one.messages <= 5 for one in packed)
    assert all(len(one.payload) <= 80 for one in packed)


def test_what_is_held_is_bounded_over_all_targets() -> None:
    packer = Packer(messages_max=1_000, bytes_max=1_000, held_bytes_max=300)
    size = len(plain_front(50)) + 50
    held = 0
    for number in range(100):
        taken = packer.add(f"topic-{number}", EncodedRow(bytes(50), None, 0, {}, None))
        held += size - sum(len(one.payload) for one in taken)
        assert held <= 300


def test_a_row_larger_than_a_batch_has_one_of_its_own() -> None:
    packer = Packer(messages_max=10, bytes_max=100, held_bytes_max=1_000)
    packed = [*packer.add_plain("t", [b"small", bytes(500), b"again"]), *packer.rest()]
    assert [one.messages for one in packed] == [1, 1, 1]
