# SPDX-License-Identifier: Apache-2.0
"""What decides about messages on their way out: metadata, batches, chunks, routes, pending entries, room."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.client.batching import OVERHEAD_BYTES, BatchCollector
from magnetar.client.chunks import ChunkAssembly, cut
from magnetar.client.entry_builder import EntryBuilder
from magnetar.client.message_id import MessageId
from magnetar.client.options import (
    BatchingType,
    CompressionType,
    HashingScheme,
    PartitionsRoutingMode,
    ProducerOptions,
)
from magnetar.client.outgoing import MetadataEncoder, OutgoingMessage
from magnetar.client.pending_sends import PendingSend, PendingSends, ReceiptMatch
from magnetar.client.receipt import Receipt
from magnetar.client.room import Room
from magnetar.client.routing import RoundRobinRouter, hash_of, router_of
from magnetar.errors import BadSetting, MessageTooLarge
from magnetar.ids import Position
from magnetar.wire import batch, message
from magnetar.wire.compression import decompress
from magnetar.wire.frame import FrameCutter
from magnetar.wire.proto import pulsar_api_pb2 as pb

texts = st.text(max_size=8)
messages = st.builds(
    OutgoingMessage,
    st.binary(max_size=40),
    properties=st.dictionaries(texts, texts, max_size=2),
    partition_key=st.none() | texts | st.binary(max_size=5),
    ordering_key=st.none() | st.binary(max_size=5),
    event_time_ms=st.integers(0, 2**40),
    is_null=st.booleans(),
)


@given(messages, texts, st.integers(0, 2**63), st.integers(0, 2**45))
def test_metadata_is_what_protobuf_would_write(one: OutgoingMessage, name: str, sequence: int, time_ms: int) -> None:
    optional = pb.MessageMetadata()
    one.fill(optional)
    expected = pb.MessageMetadata(producer_name=name, sequence_id=sequence, publish_time=time_ms)
    expected.MergeFrom(optional)
    encoder = MetadataEncoder(name)
    assert encoder.encode(sequence, time_ms, optional) == expected.SerializeToString()
    plain = pb.MessageMetadata(producer_name=name, sequence_id=sequence, publish_time=time_ms)
    assert encoder.encode(sequence, time_ms, None) == plain.SerializeToString()


@given(messages, st.integers(0, 2**63))
def test_metadata_inside_a_batch_is_what_protobuf_would_write(one: OutgoingMessage, sequence: int) -> None:
    one.sequence_id = sequence
    found = pb.SingleMessageMetadata.FromString(one.single_metadata())
    assert (found.payload_size, found.sequence_id) == (len(one.payload), sequence)
    assert found.SerializeToString() == one.single_metadata()


def entries(sends: Sequence[PendingSend]) -> list[tuple[pb.CommandSend, pb.MessageMetadata, bytes]]:
    """What a broker reads of the frames."""
    found = []
    for send in sends:
        ((command, body),) = FrameCutter(10**8).feed(b"".join(bytes(buffer) for buffer in send.buffers))
        message.check_intact(body)
        metadata, payload = message.split(body)
        found.append((pb.BaseCommand.FromString(command).send, metadata, bytes(payload)))
    return found


@given(st.lists(messages, min_size=2, max_size=10), st.sampled_from(CompressionType))
@settings(max_examples=60)
def test_a_batch_is_read_as_it_was_given(many: list[OutgoingMessage], compression: CompressionType) -> None:
    builder = EntryBuilder(3, "me", ProducerOptions(compression_type=compression), None, 10**6)
    collector = BatchCollector(100, 10**6)
    for number, one in enumerate(many):
        one.sequence_id = number + 5
        collector.add(one)
    (taken,) = collector.take()
    ((send, metadata, payload),) = entries(list(builder.batch(taken, 1, 0.0)))
    assert (send.producer_id, send.sequence_id, send.num_messages) == (3, 5, len(many))
    assert send.highest_sequence_id == metadata.highest_sequence_id == len(many) + 4
    if compression:
        payload = decompress(metadata.compression, payload, metadata.uncompressed_size, 10**6)
    parts = batch.split(payload, metadata.num_messages_in_batch)
    assert [bytes(part.payload) for part in parts] == [one.payload for one in many]
    assert [part.metadata.partition_key for part in parts] == [one.partition_key or "" for one in many]


@given(
    st.lists(st.tuples(st.binary(max_size=30), st.sampled_from(["a", "b", None])), max_size=40),
    st.integers(1, 8),
    st.integers(20, 200),
    st.booleans(),
)
def test_batches_are_what_a_plain_list_would_give(
    given_messages: list[tuple[bytes, str | None]], count_max: int, bytes_max: int, by_key: bool
) -> None:
    collector = BatchCollector(count_max, bytes_max, by_key=by_key)
    taken: list[list[bytes]] = []
    twin: list[list[bytes]] = []
    waiting: list[tuple[bytes, str | None]] = []

    def cut_twin() -> None:
        keys = list(dict.fromkeys(key for _, key in waiting)) if by_key else [None]
        for key in keys:
            twin.append([payload for payload, own in waiting if not by_key or own == key])  # noqa: PERF401
        waiting.clear()

    for payload, key in given_messages:
        one = OutgoingMessage(payload, partition_key=key)
        if waiting and sum(len(p) + OVERHEAD_BYTES for p, _ in waiting) + len(payload) + OVERHEAD_BYTES > bytes_max:
            assert not collector.fits(one)
            taken += [[m.payload for m in found.messages] for found in collector.take()]
            cut_twin()
        else:
            assert collector.fits(one)
        waiting.append((payload, key))
        full = len(waiting) >= count_max or sum(len(p) + OVERHEAD_BYTES for p, _ in waiting) >= bytes_max
        assert collector.add(one) == full
        if full:
            taken += [[m.payload for m in found.messages] for found in collector.take()]
            cut_twin()
    assert taken == twin
    assert len(collector) == len(waiting)


def test_messages_that_cannot_share_metadata_do_not_share_a_batch() -> None:
    collector = BatchCollector(100, 10**6)
    collector.add(OutgoingMessage(b"x", schema_version=b"1"))
    assert not collector.fits(OutgoingMessage(b"x", schema_version=b"2"))
    assert not collector.fits(OutgoingMessage(b"x", schema_version=b"1", replicate_to=("c",)))
    assert not collector.fits(OutgoingMessage(b"x", schema_version=b"1", transaction=(1, 2)))
    assert collector.fits(OutgoingMessage(b"x", schema_version=b"1"))


@given(st.binary(max_size=300), st.integers(1, 60))
def test_pieces_put_together_are_the_whole(payload: bytes, size: int) -> None:
    pieces = list(cut(payload, size))
    assert b"".join(pieces) == payload
    assert all(len(piece) <= size for piece in pieces)


@pytest.mark.feature("F-PROD-13", "F-PROD-21")
def test_a_large_message_becomes_chunks_in_order() -> None:
    options = ProducerOptions(chunking_enabled=True)
    builder = EntryBuilder(1, "me", options, None, 1_000)
    one = OutgoingMessage(bytes(range(256)) * 20, sequence_id=9)
    found = entries(list(builder.single(one, 1, 0.0)))
    assert len(found) > 5
    assert [metadata.chunk_id for _, metadata, _ in found] == list(range(len(found)))
    assert {
        (metadata.uuid, metadata.num_chunks_from_msg, metadata.total_chunk_msg_size) for _, metadata, _ in found
    } == {("me-9", len(found), len(one.payload))}
    assert all(send.is_chunk and send.sequence_id == 9 for send, _, _ in found)
    assert b"".join(payload for _, _, payload in found) == one.payload


def test_a_message_over_the_limit_is_refused() -> None:
    builder = EntryBuilder(1, "me", ProducerOptions(), None, 1_000)
    with pytest.raises(MessageTooLarge, match="1000"):
        list(builder.single(OutgoingMessage(bytes(1_001), sequence_id=1), 1, 0.0))


class ChunkTwin:
    """Whole messages only, by dictionary."""

    @staticmethod
    def whole(deliveries: list[tuple[int, int]], counts: list[int]) -> list[int]:
        progress: dict[int, int] = {}
        done = []
        for uuid, chunk in deliveries:
            if chunk == 0:
                progress[uuid] = 0
            if uuid not in progress or chunk < progress[uuid]:
                continue
            if chunk > progress[uuid]:
                del progress[uuid]
                continue
            progress[uuid] += 1
            if progress[uuid] == counts[uuid]:
                done.append(uuid)
                del progress[uuid]
        return done


@pytest.mark.feature("F-CONS-29")
@given(st.lists(st.integers(1, 4), min_size=3, max_size=3), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3))))
def test_chunks_are_assembled_as_a_plain_dictionary_would(counts: list[int], deliveries: list[tuple[int, int]]) -> None:
    deliveries = [(uuid, chunk) for uuid, chunk in deliveries if chunk < counts[uuid]]
    assembly = ChunkAssembly(10, 1_000)
    done = []
    for place, (uuid, chunk) in enumerate(deliveries):
        metadata = pb.MessageMetadata(
            uuid=str(uuid), chunk_id=chunk, num_chunks_from_msg=counts[uuid], total_chunk_msg_size=counts[uuid] * 2
        )
        whole = assembly.add(metadata, bytes((uuid, chunk)), Position(1, place), 0, 1_000)
        if whole is not None:
            assert bytes(whole.buffer) == b"".join(bytes((uuid, index)) for index in range(counts[uuid]))
            done.append(uuid)
    assert done == ChunkTwin.whole(deliveries, counts)


@pytest.mark.feature("F-CONS-29")
def test_assembly_is_bounded_in_number_and_time() -> None:
    """F142: of messages that never become whole the oldest go, and all of them in time."""

    def first(uuid: str) -> pb.MessageMetadata:
        return pb.MessageMetadata(uuid=uuid, chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=2)

    assembly = ChunkAssembly(2, 100)
    for number in range(3):
        assembly.add(first(str(number)), b"x", Position(1, number), 0, 10)
    assert (len(assembly), assembly.take_dropped()) == (2, [Position(1, 0)])
    assembly.expire(100)
    assert (len(assembly), assembly.take_dropped()) == (0, [Position(1, 1), Position(1, 2)])


@pytest.mark.feature("F-PROD-11", "D-31")
@given(texts, st.integers(1, 20), st.sampled_from(HashingScheme))
def test_a_key_goes_to_one_partition_in_every_mode(key: str, partitions: int, scheme: HashingScheme) -> None:
    for mode in (PartitionsRoutingMode.UseSinglePartition, PartitionsRoutingMode.RoundRobinDistribution):
        router = router_of(ProducerOptions(message_routing_mode=mode, hashing_scheme=scheme), Random(1))
        chosen = {router.choose(OutgoingMessage(b"", partition_key=key), partitions, now) for now in range(5)}
        assert chosen == {hash_of(key, scheme) % partitions}


@given(
    st.lists(st.none() | texts, max_size=30), st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(0, 5)
)
def test_routing_is_a_count_and_a_sum(keys: list[str | None], counts: list[int], first: int) -> None:
    """Against the definitions: Java's hash is a sum over UTF-16 units, round robin counts what has no key."""
    router = RoundRobinRouter(first, HashingScheme.JavaStringHash)
    keyless = first
    for index, key in enumerate(keys):
        # Partitions may be added while messages are sent.
        partitions = sorted(counts)[index * len(counts) // len(keys)]
        chosen = router.choose(OutgoingMessage(b"", partition_key=key), partitions, 0)
        if key is None:
            assert chosen == keyless % partitions
            keyless += 1
        else:
            units = memoryview(key.encode("utf-16-le")).cast("H").tolist()
            whole = sum(unit * 31 ** (len(units) - 1 - place) for place, unit in enumerate(units))
            assert chosen == (whole & 0x7FFF_FFFF) % partitions


@pytest.mark.feature("F-PROD-09", "F-PROD-12", "F-PROD-35")
def test_round_robin_turns_by_message_or_by_time() -> None:
    plain = OutgoingMessage(b"")
    turning = RoundRobinRouter(0, HashingScheme.Murmur3_32Hash)
    assert [turning.choose(plain, 3, 0) for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    timed = router_of(
        ProducerOptions(batching_enabled=True, batching_max_publish_delay_ms=1, batching_partition_switch_frequency=10),
        Random(1),
    )
    chosen = [timed.choose(plain, 4, now) for now in range(40)]
    assert all(len(set(chosen[start : start + 10])) == 1 for start in range(0, 40, 10))
    assert len(set(chosen)) == 4
    partial = RoundRobinRouter(5, HashingScheme.Murmur3_32Hash, partitions_max=2)
    assert {partial.choose(plain, 8, 0) for _ in range(8)} == {0, 1}


def test_a_router_that_leaves_the_partitions_is_told() -> None:
    router = router_of(ProducerOptions(message_router=lambda message, count: count), Random(1))
    with pytest.raises(BadSetting, match="there are 2"):
        router.choose(OutgoingMessage(b""), 2, 0)


def pending(sequence_id: int) -> PendingSend:
    return PendingSend((b"",), [], sequence_id, sequence_id, 0, 0.0)


@pytest.mark.feature("F-PROD-15")
def test_receipts_are_matched_with_the_head() -> None:
    sends = PendingSends()
    assert sends.on_receipt(1) is ReceiptMatch.STALE
    for number in (3, 4, 5):
        sends.add(pending(number))
    assert sends.on_receipt(2) is ReceiptMatch.STALE
    assert sends.on_receipt(4) is ReceiptMatch.GAP
    assert sends.on_receipt(3) is ReceiptMatch.SETTLED


@given(st.lists(st.sampled_from(["add", "write", "pop", "rewind", "remove"]), max_size=60))
def test_what_is_unwritten_is_always_the_newest(steps: list[str]) -> None:
    sends = PendingSends()
    queue: list[tuple[int, bool]] = []
    number = 0
    for step in steps:
        if step == "add":
            sends.add(pending(number))
            queue.append((number, False))
            number += 1
        elif step == "write":
            expected = [own for own, written in queue if not written][:2]
            assert [send.sequence_id for send in sends.take_unwritten(2)] == expected
            queue = [(own, written or own in expected) for own, written in queue]
        elif step == "pop" and queue and queue[0][1]:
            assert sends.pop().sequence_id == queue.pop(0)[0]
        elif step == "rewind":
            sends.rewind()
            queue = [(own, False) for own, _ in queue]
        elif step == "remove" and queue:
            middle = queue.pop(len(queue) // 2)[0]
            assert [send.sequence_id for send in sends.remove(middle)] == [middle]
        assert sends.unwritten == sum(1 for _, written in queue if not written)


def test_room_is_given_in_the_order_of_asking() -> None:
    async def test() -> None:
        room = Room(3)
        assert room.try_take(2)
        assert room.try_take(5)
        order: list[int] = []

        async def take(number: int, amount: int) -> None:
            await room.take(amount)
            order.append(number)

        tasks = [asyncio.ensure_future(take(number, amount)) for number, amount in ((1, 2), (2, 1), (3, 1))]
        await asyncio.sleep(0)
        assert not room.try_take(1)
        tasks[1].cancel()
        await asyncio.sleep(0)
        room.give(5)
        await tasks[0]
        assert not tasks[2].done()
        room.give(2)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == [1, 3]
        assert room.used == 3

    asyncio.run(test())


def test_a_receipt_may_be_awaited_by_many_and_by_none() -> None:
    async def test() -> None:
        receipt = Receipt(1)
        told: list[bool] = []
        receipt.add_done_callback(lambda done: told.append(done.done()))

        async def wait() -> MessageId:
            return await receipt

        waiting = [asyncio.ensure_future(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        receipt.resolve(MessageId(1, 2))
        assert [await task for task in waiting[1:]] == [MessageId(1, 2)] * 2
        assert told == [True]
        assert await receipt == receipt.result() == MessageId(1, 2)

    asyncio.run(test())


def test_key_based_batches_are_numbered_when_they_leave() -> None:
    assert ProducerOptions(batching_type=BatchingType.KeyBased).batching_type is BatchingType.KeyBased
    collector = BatchCollector(10, 1_000, by_key=True)
    for number, key in enumerate("abab"):
        collector.add(OutgoingMessage(str(number).encode(), partition_key=key))
    assert [[one.payload for one in found.messages] for found in collector.take()] == [[b"0", b"2"], [b"1", b"3"]]
