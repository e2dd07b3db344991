# SPDX-License-Identifier: Apache-2.0
"""Facts of stored entries: right for every shape, parsed once, and never more than the bound."""

import base64
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker import entry_facts
from magnetar.broker.entry_facts import HASH_SLOTS, EntryFacts, FactsTable, parse_facts, slot_of
from magnetar.managed_ledger.entry import Entry
from magnetar.wire import broker_entry, compiled, message
from magnetar.wire.message_key import sticky_key
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata


def metadata(**fields: object) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **fields)  # type: ignore[arg-type]


def entry_of(fields: MessageMetadata, *, prefix: bytes = b"", checksum: bool = True, entry_id: int = 0) -> Entry:
    body = b"".join(message.join(fields.SerializeToString(), b"payload"))
    return Entry(1, entry_id, memoryview(prefix + (body if checksum else body[message.CHECKSUM_BYTES :])))


@pytest.mark.parametrize("prefix", [b"", broker_entry.encode(1_700_000_000_000, 12)], ids=["bare", "with-index"])
@pytest.mark.parametrize("checksum", [True, False])
def test_the_facts_of_a_batch_a_chunk_a_marker_and_a_delayed_message(prefix: bytes, checksum: bool) -> None:
    def facts(**fields: object) -> object:
        return parse_facts(entry_of(metadata(**fields), prefix=prefix, checksum=checksum))

    assert parse_facts(entry_of(metadata(), prefix=prefix, checksum=checksum)).message_start == len(prefix)
    cases: list[tuple[dict[str, object], str, object]] = [
        ({"num_messages_in_batch": 12}, "messages", 12),
        ({}, "messages", 1),
        ({"deliver_at_time": 99}, "deliver_at_ms", 99),
        ({"marker_type": 0}, "is_marker", True),
        ({}, "is_marker", False),
        ({"uuid": "u", "chunk_id": 0, "num_chunks_from_msg": 2}, "chunk", ("u", False)),
        ({"uuid": "u", "chunk_id": 1, "num_chunks_from_msg": 2}, "chunk", ("u", True)),
        ({"uuid": "u", "chunk_id": 0, "num_chunks_from_msg": 1}, "chunk", None),
    ]
    for fields, name, value in cases:
        assert getattr(facts(**fields), name) == value


@given(body=st.binary(max_size=40))
def test_any_bytes_have_facts(body: bytes) -> None:
    for prefix in (b"", b"\x0e\x02", b"\x0e\x01", b"\x0e\x02\x00\x00\x00\x02\x08\x01\x0e\x01"):
        facts = parse_facts(Entry(1, 1, memoryview(prefix + body)))
        assert facts.messages >= 1
        assert 0 <= facts.message_start <= len(prefix + body)
        assert 0 <= FactsTable().keyed(Entry(1, 1, memoryview(prefix + body))).key_hash < HASH_SLOTS


def test_each_entry_is_parsed_once_however_many_ask_and_the_table_is_bounded() -> None:
    table = FactsTable(entries_max=16)
    entries = [entry_of(metadata(num_messages_in_batch=n + 1), entry_id=n) for n in range(40)]
    for _ in range(100):
        assert [table.of(entry).messages for entry in entries[:10]] == list(range(1, 11))
    assert table.parsed == 10
    for entry in entries:
        table.of(entry)
        assert len(table) <= 16


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "partition_key": st.text(max_size=5),
        "partition_key_b64_encoded": st.booleans(),
        "ordering_key": st.binary(max_size=5),
        "num_messages_in_batch": st.integers(-1, 300),
        "deliver_at_time": st.integers(0, 2**40),
        "marker_type": st.integers(0, 20),
        "txnid_least_bits": st.integers(0, 2**63),
        "txnid_most_bits": st.integers(0, 2**63),
        "uuid": st.text(max_size=3),
        "num_chunks_from_msg": st.integers(0, 3),
        "chunk_id": st.integers(0, 2),
        "event_time": st.integers(0, 2**63),
        "schema_version": st.binary(max_size=9),
    },
)


COMPILED_AND_PLAIN = [import_module(compiled.MODULE), None] if compiled.is_built() else [None]


def as_dict(facts: EntryFacts) -> dict[str, object]:
    return {name: getattr(facts, name) for name in EntryFacts.__slots__}


@given(
    st.lists(st.tuples(FIELDS, st.booleans(), st.booleans()), min_size=1, max_size=5),
    st.booleans(),
    st.binary(max_size=9),
)
def test_entries_that_were_read_together_have_the_facts_that_each_has_alone(
    shapes: list[tuple[dict[str, object], bool, bool]], keyed: bool, damage: bytes
) -> None:
    entries = [
        entry_of(
            metadata(**fields), prefix=broker_entry.encode(1, 2) if prefixed else b"", checksum=checked, entry_id=n
        )
        for n, (fields, prefixed, checked) in enumerate(shapes)
    ]
    entries.append(Entry(1, len(entries), memoryview(b"\x0e\x01" + damage)))
    for twins in COMPILED_AND_PLAIN:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(entry_facts, "_twins", twins)
            together, alone = FactsTable(), FactsTable()
            each = alone.keyed if keyed else alone.of
            for _ in range(2):
                found = together.of_all(entries, keyed=keyed)
                assert [as_dict(facts) for facts in found] == [as_dict(each(entry)) for entry in entries]


def test_a_table_that_is_full_takes_many_at_once() -> None:
    table = FactsTable(entries_max=16)
    for start in range(0, 100, 10):
        entries = [entry_of(metadata(), entry_id=start + n) for n in range(10)]
        assert len(table.of_all(entries, keyed=True)) == 10
        assert len(table) <= 16


def test_entries_that_share_facts_do_not_share_their_keys() -> None:
    table = FactsTable()
    first, second = (entry_of(metadata(partition_key=key), entry_id=n) for n, key in enumerate(("a", "b")))
    assert table.of(first) is table.of(second)
    assert [table.keyed(entry).key_hash for entry in (first, second)] == [slot_of(b"a"), slot_of(b"b")]
    assert table.of(first).key_hash == slot_of(b"a")
    assert table.keyed(first) is table.of(first)


def test_the_sticky_key_is_the_ordering_key_then_the_key_then_the_message_itself() -> None:
    assert sticky_key(metadata(partition_key="k", ordering_key=b"o")) == b"o"
    assert sticky_key(metadata(partition_key="k")) == b"k"
    encoded = base64.b64encode(b"\xff\x00").decode()
    assert sticky_key(metadata(partition_key=encoded, partition_key_b64_encoded=True)) == b"\xff\x00"
    assert sticky_key(metadata(partition_key="not base 64", partition_key_b64_encoded=True))
    assert sticky_key(metadata(partition_key="\u00e9", partition_key_b64_encoded=True)) == "\u00e9".encode()
    assert sticky_key(metadata()) == b"p-7"
    assert slot_of(b"k") == slot_of(b"k") < HASH_SLOTS


def test_what_a_producer_may_choose_is_kept_up_to_a_length() -> None:
    """F142: ids of chunked messages and keys, however long they are; different ones stay different."""
    ids = ["u" * 100_000 + end for end in "ab"]
    first, other = (parse_facts(entry_of(metadata(uuid=uuid, chunk_id=0, num_chunks_from_msg=2))).chunk for uuid in ids)
    again = parse_facts(entry_of(metadata(uuid=ids[0], chunk_id=1, num_chunks_from_msg=2))).chunk
    assert first is not None
    assert again is not None
    assert other is not None
    assert (len(first[0]), first[0]) == (64, again[0])
    assert first[0] != other[0]
    remembered = entry_facts._remembered_slot.cache_info().currsize
    assert slot_of(b"k" * 100_000) < HASH_SLOTS
    assert entry_facts._remembered_slot.cache_info().currsize == remembered
