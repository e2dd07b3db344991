# SPDX-License-Identifier: Apache-2.0
"""Compaction against a dict, over real ledgers: batches, chunks, tombstones, crashes at every step, gone ledgers."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.compaction.compacted_format import decode_entry, encode_entry
from magnetar.broker.compaction.horizon import COMPACTION_CURSOR, horizon_of
from magnetar.broker.compaction.keys import LatestKeys, TooManyKeys
from magnetar.broker.compaction.messages import messages_of
from magnetar.broker.compaction.topic_compaction import CompactionStatus, TopicCompaction
from magnetar.broker.compaction.view import CompactedView
from magnetar.config.broker import BrokerSettings
from magnetar.errors import DamagedRecord, NotSupported, PersistenceFailed
from magnetar.ids import EARLIEST, Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.cursor_store import CursorStore
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.side_ledgers import SideLedgers
from magnetar.wire import batch, broker_entry, compression, message
from magnetar.wire.batch import BatchedMessage
from magnetar.wire.proto.pulsar_api_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata
from tests.unit.managed_ledger.owners import Publisher, World

Pair = tuple[str | None, bytes]


def single(key: str | None, value: bytes, **fields: Any) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)
    if key is not None:
        metadata.partition_key = key
    return broker_entry.encode(1, 1) + b"".join(message.join(metadata.SerializeToString(), value))


def batched(pairs: Sequence[Pair], kind: Any = CompressionType.NONE, **fields: Any) -> bytes:
    parts = []
    for key, value in pairs:
        part = SingleMessageMetadata(payload_size=0)
        if key is not None:
            part.partition_key = key
        parts.append(BatchedMessage(part, value))
    joined = batch.join(parts)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=len(parts))
    metadata.compression, metadata.uncompressed_size = kind, len(joined)
    for name, values in fields.items():
        getattr(metadata, name).extend(values)
    return broker_entry.encode(1, 1) + b"".join(
        message.join(metadata.SerializeToString(), compression.compress(kind, joined))
    )


def pairs_of(entry: Entry) -> list[Pair]:
    """What a client sees of an entry."""
    metadata, payload = message.split(entry.body, broker_entry.message_start(entry.body))
    if not message.is_batch(metadata):
        return [(metadata.partition_key or None, bytes(payload))]
    data = compression.decompress(metadata.compression, payload, metadata.uncompressed_size, 1 << 20)
    return [
        (part.metadata.partition_key or None, bytes(part.payload))
        for part in batch.split(data, metadata.num_messages_in_batch)
        if not part.metadata.compacted_out
    ]


class Topic:
    """A log of messages with its compaction."""

    def __init__(self, world: World, **changes: Any) -> None:
        self.world = world
        self.settings = BrokerSettings(**changes)
        self.owner = world.owner()
        self.ledger: ManagedLedger
        self.compaction: TopicCompaction

    async def open(self) -> "Topic":
        self.publisher = Publisher()
        self.ledger = await self.owner.logs.open("public/default/persistent/t", self.publisher)
        self.publisher.ledger = self.ledger
        self.compaction = TopicCompaction("t", self.ledger, self.settings, self.owner.tasks)
        return self

    async def publish(self, *bodies: bytes) -> None:
        for body in bodies:
            self.publisher.append(body)
            await self.publisher.rest()

    async def view(self, position: Position = EARLIEST, name: str = "reader") -> list[Pair]:
        """Everything that a consumer of the compacted view gets from a place on."""
        cursor = self.ledger.new_non_durable_cursor(name, position)
        view = CompactedView(self.ledger, cursor, self.compaction)
        found: list[Pair] = []
        place = cursor.read_position
        while entries := await view.read(place, entries_max=3, bytes_max=1 << 20):
            for entry in entries:
                found += pairs_of(entry)
            place = Position(entries[-1].ledger_id, entries[-1].entry_id + 1)
        return found

    async def close(self) -> None:
        await self.compaction.close()
        await self.owner.close()


def latest(pairs: Sequence[Pair], keeps_unkeyed: bool = False) -> list[Pair]:
    """The stupid twin: a dict, in the order of what is left."""
    last: dict[str, int] = {}
    for place, (key, value) in enumerate(pairs):
        if key is not None:
            last.pop(key, None)
            if value:
                last[key] = place
    kept = set(last.values())
    return [pair for place, pair in enumerate(pairs) if place in kept or (pair[0] is None and keeps_unkeyed)]


_PAIRS = st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.sampled_from([b"", b"x", b"yy"]))
_KINDS = st.sampled_from([CompressionType.NONE, CompressionType.LZ4, CompressionType.ZLIB])
_ENTRIES = st.lists(st.one_of(_PAIRS, st.tuples(st.lists(_PAIRS, min_size=1, max_size=4), _KINDS)), max_size=12)


def body_of(entry: Any) -> bytes:
    return batched(*entry) if isinstance(entry[0], list) else single(*entry)


def flat(entries: Sequence[Any]) -> list[Pair]:
    return [pair for entry in entries for pair in (entry[0] if isinstance(entry[0], list) else [entry])]


@pytest.mark.feature("F-CMP-01", "F-CMP-02", "F-CMP-03", "F-CMP-05", "F-CMP-06", "F-CMP-12")
@settings(max_examples=40, deadline=None)
@given(st.lists(_ENTRIES, min_size=1, max_size=3), _ENTRIES, st.booleans())
def test_the_view_is_what_a_dict_would_hold_and_then_the_tail(
    rounds: list[list[Any]], tail: list[Any], keeps_unkeyed: bool
) -> None:
    async def run() -> None:
        topic = await Topic(World(), compaction_keeps_unkeyed=keeps_unkeyed).open()
        everything: list[Any] = []
        for entries in rounds:
            await topic.publish(*map(body_of, entries))
            everything += entries
            await topic.compaction.compact()
            assert await topic.view() == latest(flat(everything), keeps_unkeyed)
        await topic.publish(*map(body_of, tail))
        assert await topic.view() == latest(flat(everything), keeps_unkeyed) + flat(tail)
        await topic.close()
        topic.world.check()

    asyncio.run(run())


@pytest.mark.feature("F-CMP-03")
def test_parts_of_a_chunked_message_stay_together() -> None:
    def part(key: str, uuid: str, number: int, count: int) -> bytes:
        fields = {"uuid": uuid, "chunk_id": number, "num_chunks_from_msg": count}
        return single(key, f"{uuid}{number}".encode(), **fields)

    async def run() -> None:
        topic = await Topic(World()).open()
        await topic.publish(part("k", "old", 0, 2), part("k", "old", 1, 2), part("k", "new", 0, 2))
        await topic.publish(single("other", b"o"), part("k", "new", 1, 2), part("j", "open", 0, 2))
        await topic.compaction.compact()
        values = [value for _, value in await topic.view()]
        assert values == [b"new0", b"o", b"new1", b"open0"], "all of the last, none of the one before, all that is open"
        await topic.publish(part("j", "open", 1, 2), single("k", b"whole"))
        await topic.compaction.compact()
        assert [value for _, value in await topic.view()] == [b"o", b"open0", b"open1", b"whole"]
        await topic.close()

    asyncio.run(run())


@pytest.mark.feature("F-CMP-03")
def test_what_cannot_be_looked_into_is_kept_and_every_kind_of_nothing_deletes() -> None:
    async def run() -> None:
        topic = await Topic(World()).open()
        encrypted = batched([("a", b"secret")], encryption_keys=[])
        metadata, payload = message.split(encrypted, broker_entry.message_start(encrypted))
        metadata.encryption_keys.add(key="k", value=b"v")
        opaque = b"".join(message.join(metadata.SerializeToString(), payload))
        await topic.publish(opaque, b"no message at all", single("a", b"1"), single("b", b"2"), single("c", b"3"))
        await topic.publish(
            single("a", b"cipher", null_value=True),
            single("b", b"\x00", compression=CompressionType.LZ4, uncompressed_size=0),
            single("c", b""),
            single("m", b"marker", marker_type=1),
        )
        await topic.compaction.compact()
        ledger = await topic.compaction.ledger()
        assert ledger is not None
        bodies = [bytes(entry.body) for entry in await ledger.read(0, entries_max=10, bytes_max=1 << 20)]
        assert bodies == [opaque, b"no message at all"]
        await topic.close()

    asyncio.run(run())


class Interrupted(Exception):
    pass


@pytest.mark.feature("F-CMP-04")
@pytest.mark.parametrize("step", range(12))
def test_a_crash_at_any_step_leaves_the_old_view_or_the_new_and_no_ledger_without_owner(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    def interrupted(patches: pytest.MonkeyPatch, owner: type, name: str) -> None:
        original = getattr(owner, name)

        async def call(self: Any, *arguments: Any, **named: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == step:
                raise Interrupted
            return await original(self, *arguments, **named)

        patches.setattr(owner, name, call)

    async def run() -> None:
        world = World()
        topic = await Topic(world).open()
        await topic.publish(single("a", b"1"), single("b", b"1"))
        await topic.compaction.compact()
        await topic.publish(single("a", b"2"), single("c", b"2"))
        with monkeypatch.context() as patches:
            for name in ("reserve_id", "create", "delete", "open"):
                interrupted(patches, SideLedgers, name)
            for name in ("flush", "set_properties"):
                interrupted(patches, Cursor, name)
            with contextlib.suppress(Interrupted):
                await topic.compaction.compact()
        await topic.owner.die()
        heir = await Topic(world).open()
        expected = [("b", b"1"), ("a", b"2"), ("c", b"2")]
        seen = await heir.view()
        assert dict(seen) == dict(expected)
        await heir.compaction.compact()
        await heir.publish(single("d", b"3"))
        await heir.compaction.compact()
        assert await heir.view() == [*expected, ("d", b"3")]
        await heir.close()
        last = await Topic(world).open()
        horizon = horizon_of(last.ledger.cursors.get(COMPACTION_CURSOR))
        assert horizon is not None
        known = {span.ledger_id for span in last.ledger.ledgers} | {horizon.ledger_id}
        known |= set(last.ledger.cursors[COMPACTION_CURSOR].properties.values())
        compacted = await _compacted_ledgers(world)
        assert compacted <= known
        await last.close()

    asyncio.run(run())


@pytest.mark.feature("F-CMP-04")
def test_the_old_view_stays_until_the_new_one_is_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch could not be saved, another run begins, the broker dies: what the disk names must still be there."""

    async def run() -> None:
        world = World()
        topic = await Topic(world).open()
        await topic.publish(single("a", b"1"), single("b", b"1"))
        await topic.compaction.compact()
        await topic.publish(single("a", b"2"))
        with monkeypatch.context() as patches:

            async def away(store: CursorStore, snapshot: object) -> None:
                raise PersistenceFailed("the store is away")

            plain = CursorStore.save
            saves = 0

            async def fails_at_the_switch(store: CursorStore, snapshot: Any) -> None:
                nonlocal saves
                saves += 1
                await (plain if saves == 1 else away)(store, snapshot)

            patches.setattr(CursorStore, "save", fails_at_the_switch)
            for _ in range(2):
                with contextlib.suppress(PersistenceFailed):
                    await topic.compaction.compact()
            assert saves >= 2
            await topic.owner.die()
        heir = await Topic(world).open()
        assert await heir.view() == [("a", b"1"), ("b", b"1"), ("a", b"2")], "the old view, and then the log"
        await heir.compaction.compact()
        assert await heir.view() == [("b", b"1"), ("a", b"2")]
        await heir.close()

    asyncio.run(run())


async def _compacted_ledgers(world: World) -> set[int]:
    catalog = world.cluster.client("auditor").ledgers.catalog
    found = set()
    for ledger_id in await world.existing_ledgers():
        custom = (await catalog.load(ledger_id)).record.custom or {}
        if custom.get("component") == b"compacted-topic":
            found.add(ledger_id)
    return found


@pytest.mark.feature("F-CMP-05")
def test_the_view_is_whole_when_the_source_is_gone_and_the_horizon_stays() -> None:
    async def run() -> None:
        world = World(ledger_entries_max=2, retention_ms=0, retention_bytes=0)
        topic = await Topic(world).open()
        await topic.ledger.open_cursor("keeps everything", initial=EARLIEST)
        for number in range(6):
            await topic.publish(single(f"k{number}", b"v"))
        await topic.compaction.compact()
        await topic.ledger.delete_cursor("keeps everything")
        world.clock.time_ms += 60_000
        await topic.ledger.trim()
        assert topic.ledger.ledgers.first.ledger_id > 1, "the first ledgers are gone"
        assert [key for key, _ in await topic.view()] == [f"k{number}" for number in range(6)]
        await topic.close()
        heir = await Topic(world).open()
        await heir.publish(single("k0", b"w"))
        assert [value for _, value in await heir.view()] == [b"v"] * 6 + [b"w"]
        await heir.compaction.compact()
        assert await heir.view() == [*((f"k{number}", b"v") for number in range(1, 6)), ("k0", b"w")]
        await heir.close()

    asyncio.run(run())


def test_a_reader_in_the_middle_gets_what_is_left_from_there() -> None:
    async def run() -> None:
        topic = await Topic(World()).open()
        await topic.publish(*(single(f"k{number % 4}", bytes([number])) for number in range(1, 9)))
        await topic.compaction.compact()
        first = topic.ledger.first_position
        assert [value for _, value in await topic.view(Position(first.ledger_id, 6))] == [b"\x07", b"\x08"]
        await topic.close()

    asyncio.run(run())


@pytest.mark.feature("F-CMP-08")
def test_a_run_says_how_it_went_and_one_that_fails_leaves_nothing() -> None:
    async def run() -> None:
        world = World()
        topic = await Topic(world, compaction_memory_bytes_max=1_000).open()
        states = [topic.compaction.status]
        await topic.publish(*(single(f"key{number}", b"v") for number in range(10)))
        ledgers = await world.existing_ledgers()
        running = topic.compaction.start()
        with pytest.raises(NotSupported, match="already running"):
            topic.compaction.start()
        await asyncio.wait((running,))
        states.append(topic.compaction.status)
        assert "broker.compaction_memory_bytes_max" in topic.compaction.error
        assert COMPACTION_CURSOR not in topic.ledger.cursors
        assert await _compacted_ledgers(world) == set()
        assert ledgers <= await world.existing_ledgers()
        topic.compaction._settings = BrokerSettings()
        await asyncio.wait((topic.compaction.start(),))
        states.append(topic.compaction.status)
        assert states == [CompactionStatus.NOT_RUN, CompactionStatus.ERROR, CompactionStatus.SUCCESS]
        assert topic.compaction.bytes_since == 0
        await topic.close()

    asyncio.run(run())


@pytest.mark.feature("F-CMP-02")
def test_the_table_holds_a_place_per_key_however_many_messages_there_are() -> None:
    keys = LatestKeys(bytes_max=1 << 20, keeps_unkeyed=False)
    for number in range(20_000):
        entry = Entry(1, number, memoryview(single(f"k{number % 100}", b"v")))
        keys.note(entry.position, messages_of(entry))
    assert len(keys) == 100
    small = LatestKeys(bytes_max=1000, keeps_unkeyed=False)
    many = messages_of(Entry(1, 1, memoryview(batched([(f"k{number}", b"v") for number in range(100)]))))
    with pytest.raises(TooManyKeys):
        small.note(Position(1, 1), many)


def test_the_stored_form_is_upstreams() -> None:
    body = single("k", b"v")
    data = encode_entry(Position(3, 7), body)
    # 4 id size, MessageIdData, 4 size, the entry.
    assert data[:8] == b"\x00\x00\x00\x04\x08\x03\x10\x07"
    assert data[8:12] == len(body).to_bytes(4, "big")
    entry = decode_entry(memoryview(data))
    assert (entry.position, bytes(entry.body)) == (Position(3, 7), body)
    for damaged in (b"", data[:-1], b"\x00\x00\x00\x02\xff\xff"):
        with pytest.raises(DamagedRecord):
            decode_entry(memoryview(damaged))


@pytest.mark.feature("B-17")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.booleans()), max_size=25))
def test_by_event_time_the_latest_that_happened_is_kept(messages: list[tuple[str, int, bool]]) -> None:
    keys = LatestKeys(bytes_max=10**6, keeps_unkeyed=False, by_event_time=True)
    entries = [
        (Position(1, n), messages_of(Entry(1, n, memoryview(single(key, b"v" if full else b"", event_time=time)))))
        for n, (key, time, full) in enumerate(messages)
    ]
    for position, entry in entries:
        keys.note(position, entry)
    kept = [position.entry_id for position, entry in entries if keys.kept(position, entry).is_whole]
    best: dict[str, int] = {}
    for n, (key, time, _) in enumerate(messages):
        if key not in best or time >= messages[best[key]][1]:
            best[key] = n
    assert kept == sorted(n for n in best.values() if messages[n][2])


@pytest.mark.feature("B-17")
def test_every_variant_of_compaction_is_a_setting() -> None:
    async def main() -> None:
        for order, unkeyed, expected in (
            ("publish", False, [("k", b"old")]),
            ("event_time", False, [("k", b"new")]),
            ("event_time", True, [("k", b"new"), (None, b"none")]),
        ):
            topic = await Topic(World(), compaction_order=order, compaction_keeps_unkeyed=unkeyed).open()
            await topic.publish(
                single("k", b"new", event_time=9), single(None, b"none"), single("k", b"old", event_time=3)
            )
            await topic.compaction.compact()
            assert await topic.view() == expected
            await topic.close()

    asyncio.run(main())


@pytest.mark.feature("F-CONS-10", "F-CMP-09")
def test_compaction_reads_stored_bytes_as_they_are_with_metadata_and_all() -> None:
    async def main() -> None:
        topic = await Topic(World()).open()
        bodies = [
            single("a", b"plain", properties=[]),
            batched([("b", b"one"), ("c", b"two")], CompressionType.LZ4),
            single("d", b"sealed", encryption_keys=[{"key": "k", "value": b"v"}]),
        ]
        await topic.publish(*bodies)
        raw = [bytes(entry.body) async for entry in topic.compaction._entries(topic.ledger.last_confirmed)]
        assert raw == bodies, "undecoded: what the broker put in front, metadata and payload"
        await topic.compaction.compact()
        ledger = await topic.compaction.ledger()
        assert ledger is not None
        kept = await ledger.read(0, entries_max=10, bytes_max=1 << 20)
        assert [bytes(entry.body) for entry in kept] == bodies, "and kept so"
        await topic.close()

    asyncio.run(main())
