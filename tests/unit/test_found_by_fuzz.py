# SPDX-License-Identifier: Apache-2.0
"""What hostile bytes have found, each as a plain test."""

import pytest

from magnetar.bookie.ledger_table import LedgerTable
from magnetar.broker.ownership.isolation import decode_policies, is_isolated
from magnetar.client import schema
from magnetar.errors import BadSchema, DamagedRecord
from magnetar.managed_ledger.cursor_record import CursorRecord
from magnetar.managed_ledger.record_format import decode_ledger_record
from magnetar.managed_ledger.record_intents import split_properties
from magnetar.wire import batch, message
from magnetar.wire.message_row import NO_ROW, MessageRow
from magnetar.wire.proto.ml_formats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from magnetar.wire.proto.pulsar_api_pb2 import SingleMessageMetadata


@pytest.mark.parametrize("front", ["000000061801400118026162", "0000000618014001200161"])
def test_a_field_behind_a_messages_sequence_id_is_heeded_as_protobuf_does(front: str) -> None:
    """A size that comes twice, and the mark of what was compacted out, behind what is read by hand."""
    data = bytes.fromhex(front)
    (parsed,) = batch.split(data, 1)
    ((_, begin, end, is_out),) = batch.spans(data, 1)
    assert (data[begin:end], is_out) == (bytes(parsed.payload), parsed.metadata.compacted_out)


@pytest.mark.parametrize("sequence_id", [0, 127, 128, 1 << 14, 1 << 21, 1 << 28, 1 << 63])
def test_sequence_ids_of_every_length_are_read_by_hand(sequence_id: int) -> None:
    metadata = SingleMessageMetadata(payload_size=0, sequence_id=sequence_id)
    data = batch.join([batch.BatchedMessage(metadata, b"abc")] * 3)
    assert [data[begin:end] for _, begin, end, _ in batch.spans(data, 3)] == [b"abc"] * 3


def test_a_message_id_that_runs_over_its_end_begins_no_row() -> None:
    assert MessageRow.of(bytes.fromhex("08094a0f0801120908f40310f0a20418ffff04")) is NO_ROW


@pytest.mark.parametrize("cut", [b"\x0e\x01", b"\x0e\x01\x00", b"\x0e\x01\x00\x00\x00"])
def test_a_message_that_ends_inside_of_its_checksum_is_not_intact(cut: bytes) -> None:
    assert not message.is_intact(cut)
    assert not message.is_intact(b"abc" + cut, 3)


def test_a_record_with_text_that_is_no_utf_8_is_damaged() -> None:
    cursor = ManagedCursorInfo(cursorsLedgerId=-1)
    cursor.cursorProperties.add(name="a", value="b")
    log = ManagedLedgerInfo()
    log.properties.add(key="a", value="b")
    for data, decode in (
        (cursor.SerializeToString(), CursorRecord.decode),
        (log.SerializeToString(), decode_ledger_record),
    ):
        decode(data)
        with pytest.raises(DamagedRecord, match="UTF-8"):
            decode(data.replace(b"\x01a", b"\x01\xff"))


def test_ids_of_our_own_that_are_no_ids_are_left_out() -> None:
    _, intents = split_properties({"magnetar.deleting": "3,²," + "9" * 5_000, "magnetar.reserved": "²"})
    assert intents == ([3], False, None)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\xff" * 40])
def test_a_list_of_deleted_ledgers_that_cannot_be_read_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedRecord):
        LedgerTable(idle_max=1).load_deleted(data)


@pytest.mark.parametrize("kind", [schema.TIMESTAMP, schema.DATE, schema.TIME, schema.LOCAL_DATE])
def test_a_moment_beyond_pythons_years_is_refused(kind: schema.Schema[object]) -> None:
    for data in (b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7)):
        with pytest.raises(BadSchema, match="9999"):
            kind.decode(data)
    with pytest.raises(BadSchema, match="9999"):
        schema.INSTANT.decode(b"\x7f" + b"\xff" * 7 + bytes(4))


@pytest.mark.parametrize(
    "failover", ["x", [1], {"parameters": "x"}, {"parameters": {"min_limit": "inf", "usage_threshold": "nan"}}]
)
def test_an_isolation_policy_without_a_usable_failover_has_the_usual(failover: object) -> None:
    (policy,) = decode_policies({"p": {"namespaces": ["a/b"], "auto_failover_policy": failover}})
    (usual,) = decode_policies({"p": {"namespaces": ["a/b"]}})
    assert policy == usual


def test_a_pattern_that_nests_too_deeply_matches_nothing() -> None:
    policies = decode_policies({"p": {"namespaces": ["(" * 20_000]}})
    assert not is_isolated("a/b", policies)
