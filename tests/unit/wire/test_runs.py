# SPDX-License-Identifier: Apache-2.0
"""The run loops: what each must give, and that the compiled twins give the same for everything."""

import os
from collections import deque
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.bookie import entry_batches, records
from magnetar.broker import send_run
from magnetar.wire import broker_entry, compiled, frame, hot, runs
from magnetar.wire.message import join

UINT64 = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
BODIES = st.binary(max_size=40)
# Of a few ledgers, so that some follow others of theirs.
PACKED = st.builds(
    lambda ledger_id, rest: ledger_id.to_bytes(8, "big", signed=True) + rest,
    st.integers(-1, 1),
    st.binary(min_size=8, max_size=300),
)


@pytest.fixture(scope="module")
def twins() -> ModuleType:
    if not compiled.is_built():
        sentence = "the compiled run loops are not built: `make compile` builds them"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)
    return import_module(compiled.MODULE)


def plain_send(
    producer_id: int, sequence_id: int, payload: bytes, messages: int = 1, highest: int = 0
) -> tuple[bytes, bytes]:
    return hot.encode_send(producer_id, sequence_id, messages, highest), b"".join(join(b"metadata", payload))


@st.composite
def frames(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Plain SENDs of a few producers, among damaged and other ones."""
    found = []
    for _ in range(draw(st.integers(0, 8))):
        messages, highest = draw(st.sampled_from([1, 1, 0, 2, 300, -1])), draw(st.just(0) | UINT64)
        command, body = plain_send(draw(st.sampled_from([0, 1, 300])), draw(UINT64), draw(BODIES), messages, highest)
        match draw(st.integers(0, 9)):
            case 0:
                at = draw(st.integers(0, len(body) - 1))
                body = body[:at] + bytes([body[at] ^ draw(st.integers(1, 255))]) + body[at + 1 :]
            case 1:
                at = draw(st.integers(0, len(command) - 1))
                command = command[:at] + bytes([command[at] ^ draw(st.integers(1, 255))]) + command[at + 1 :]
            case 2:
                body = body[: draw(st.integers(0, len(body)))]
            case 3:
                command = command[: draw(st.integers(0, len(command)))]
            case 4:
                command, body = draw(BODIES), draw(BODIES)
        found.append((command, body))
    return found


@pytest.mark.parametrize("size", [0, 7, 750, 768, 769, 1500, 6143, 6144, 6150, 7000, 12_345, 100_000])
def test_a_body_of_any_size_is_summed_alike(twins: ModuleType, size: int) -> None:
    """Around the sizes from which the compiled sum takes three stretches at a time."""
    payload = bytes((7 * at + at // 251) % 256 for at in range(size))
    sends = [plain_send(7, 0, payload), plain_send(7, 1, payload[1:] + b"?")]
    assert twins.read_sends(sends, 0, []) == (2, 7) == runs.read_sends(sends, 0, [])
    if size:
        damaged = sends[0][1][:-1] + bytes([sends[0][1][-1] ^ 1])
        assert twins.read_sends([(sends[0][0], damaged)], 0, []) == (0, 7)


def test_sends_of_one_producer_are_one_run() -> None:
    sends = [plain_send(7, sequence_id, b"x" * sequence_id) for sequence_id in range(3)]
    other = plain_send(8, 0, b"y")
    run: list[runs.Send] = []
    assert runs.read_sends([*sends, other], 0, run) == (3, 7)
    assert run == [(sequence_id, 0, 1, body) for sequence_id, (_, body) in enumerate(sends)]
    damaged = (sends[0][0], sends[0][1][:-1] + b"?")
    assert runs.read_sends([damaged], 0, []) == (0, 7)
    assert runs.read_sends([other, (b"", b"")], 1, [])[0] == 1


def test_frames_are_cut_up_to_the_first_that_is_not_whole() -> None:
    stream = frame.join(b"one", b"body") + frame.join(b"two")
    found: list[runs.Frame] = []
    assert runs.cut_frames(stream + b"\0\0\0\x09\0\0", 0, 100, found) == len(stream)
    assert found == [(b"one", b"body"), (b"two", b"")]
    assert runs.cut_frames(stream, 0, 10, []) == 0, "over the limit: left where it is"


@given(frames(), st.integers(0, 3))
@settings(max_examples=300)
def test_compiled_reading_of_sends_is_the_plain_one(
    twins: ModuleType, found: list[tuple[bytes, bytes]], start: int
) -> None:
    start = min(start, len(found))
    plain: list[Any] = []
    fast: list[Any] = []
    assert twins.read_sends(found, start, fast)[0] == runs.PLAIN[1](found, start, plain)[0]
    assert fast == plain
    if plain:
        assert twins.read_sends(found, start, []) == runs.PLAIN[1](found, start, [])


@given(st.lists(st.tuples(BODIES, BODIES), max_size=5), st.binary(max_size=12), st.integers(0, 3), st.integers(4, 60))
def test_compiled_cutting_is_the_plain_one(
    twins: ModuleType, pieces: list[tuple[bytes, bytes]], tail: bytes, start: int, size_max: int
) -> None:
    stream = b"".join(frame.join(command, body) for command, body in pieces) + tail
    plain: list[Any] = []
    fast: list[Any] = []
    assert twins.cut_frames(stream, start, size_max, fast) == runs.PLAIN[0](stream, start, size_max, plain)
    assert fast == plain


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.lists(st.tuples(BODIES, BODIES), max_size=5))
def test_compiled_packing_is_the_plain_one(
    twins: ModuleType, ledger_id: int, first: int, entries: list[tuple[bytes, bytes]]
) -> None:
    arguments = (ledger_id, first, first - 1, 4_096, entries)
    assert twins.pack_entries(*arguments) == runs.PLAIN[2](*arguments)


@given(UINT64, st.integers(-1, 2**63 - 1), st.integers(0, 2**62), st.lists(st.tuples(UINT64, UINT64), max_size=5))
def test_compiled_receipts_are_the_plain_ones(
    twins: ModuleType, producer_id: int, ledger_id: int, first: int, sequences: list[tuple[int, int]]
) -> None:
    plain = hot.ReceiptEncoder(producer_id).encode_plainly(ledger_id, first, sequences)
    assert twins.frame_receipts(producer_id, ledger_id & (2**64 - 1), first, sequences) == plain


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31), st.lists(PACKED, max_size=5))
def test_compiled_records_are_the_plain_ones(twins: ModuleType, seed: int, offset: int, entries: list[bytes]) -> None:
    arguments = (seed, offset, 2**40, entries)
    assert twins.journal_records(*arguments) == records.PLAIN[0](*arguments)
    for some in (entries, entries + entries[:1]):
        fast: dict[int, int] = {0: 5}
        plain: dict[int, int] = {0: 5}
        found = twins.log_records(seed, offset, 5 << 32, some, fast)
        assert found == records.PLAIN[1](seed, offset, 5 << 32, some, plain)
        assert fast == plain


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 3), st.integers(0, 200))
def test_compiled_steps_are_the_plain_ones(twins: ModuleType, entries: list[bytes], start: int, bytes_max: int) -> None:
    start = min(start, len(entries))
    assert twins.entries_within(entries, start, bytes_max) == records.PLAIN[3](entries, start, bytes_max)


@settings(max_examples=300)
@given(
    st.builds(
        lambda consumer, positions, request, rest: hot.encode_ack(consumer, positions, request_id=request)[8:] + rest,
        UINT64,
        st.lists(st.tuples(UINT64, UINT64), max_size=4),
        st.none() | UINT64,
        st.binary(max_size=2),
    ),
    st.none() | st.tuples(st.integers(0, 60), st.integers(0, 255)),
)
def test_compiled_reading_of_acks_is_the_plain_one(
    twins: ModuleType, command: bytes, damage: tuple[int, int] | None
) -> None:
    if damage is not None and damage[0] < len(command):
        command = command[: damage[0]] + bytes([damage[1]]) + command[damage[0] + 1 :]
    assert twins.read_ack(command) == hot.decode_ack_plainly(command)


class Stored(NamedTuple):
    body: memoryview


class Shape(NamedTuple):
    message_start: int


@given(
    UINT64,
    st.integers(-1, 2**31 - 1),
    st.none() | st.integers(0, 2**62),
    st.booleans(),
    st.lists(
        st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.binary(max_size=40), st.integers(0, 40)),
        max_size=6,
    ),
    st.integers(0, 40),
)
def test_compiled_messages_are_the_plain_ones(
    twins: ModuleType,
    consumer_id: int,
    partition: int,
    epoch: int | None,
    whole: bool,
    entries: list[tuple[int, int, bytes, int]],
    copied_max: int,
) -> None:
    deliveries: list[hot.Outgoing] = [
        (Stored(memoryview(b"?" + body)[1:]), (ledger_id, entry_id), Shape(min(start, len(body))), 1, (), 0)
        for ledger_id, entry_id, body, start in entries
    ]
    plain = hot.MessageEncoder(consumer_id, partition).frames_plainly(deliveries, whole=whole, epoch=epoch)
    number = -1 if epoch is None else epoch
    buffers = twins.frame_messages(consumer_id, partition, number, whole, deliveries, copied_max)
    assert b"".join(buffers) == b"".join(plain)
    copied = [len(each[0].body) - (0 if whole else each[2].message_start) <= copied_max for each in deliveries]
    assert len(buffers) == (1 if all(copied) else 2 * copied.count(False) + (1 if copied[-1] else 0)) - (not deliveries)


def test_compiled_messages_leave_what_is_redelivered_or_in_part_to_the_plain_ones(twins: ModuleType) -> None:
    stored, shape = Stored(memoryview(b"body")), Shape(0)
    for odd in [
        (stored, (1, 2), shape, 1, (), 3),
        (stored, (1, 2), shape, 1, [5], 0),
        (stored, (1, 2), Shape(5), 1, (), 0),
    ]:
        assert twins.frame_messages(1, -1, -1, False, [odd], 100) is None
    scattered = Stored(memoryview(b"body")[::2])
    assert twins.frame_messages(1, -1, -1, False, [(scattered, (1, 2), shape, 1, (), 0)], 100) is None


@given(
    st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40), st.lists(BODIES, max_size=5), st.integers(0, 4), st.data()
)
def test_compiled_checks_of_entries_are_the_plain_ones(
    twins: ModuleType, ledger_id: int, first: int, bodies: list[bytes], at: int, data: st.DataObject
) -> None:
    packed, _ = runs.PLAIN[2](ledger_id, first, first - 1, 0, [(b"", body) for body in bodies])
    assert twins.count_intact(ledger_id, first, packed) == runs.PLAIN[3](ledger_id, first, packed) == len(bodies)
    if at < len(packed):
        packed[at] = damaged(packed[at], data)
        assert twins.count_intact(ledger_id, first, packed) == runs.PLAIN[3](ledger_id, first, packed) == at
    assert twins.count_intact(ledger_id, first + 1, packed) == runs.PLAIN[3](ledger_id, first + 1, packed) == 0


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31), st.lists(BODIES, min_size=1, max_size=5), st.data())
def test_compiled_runs_of_a_log_are_the_plain_ones(
    twins: ModuleType, seed: int, start: int, bodies: list[bytes], data: st.DataObject
) -> None:
    ledger_id = 7
    packed, _ = runs.PLAIN[2](ledger_id, 3, 2, 0, [(b"", body) for body in bodies])
    strange, _ = runs.PLAIN[2](ledger_id + 1, 4, 3, 0, [(b"", b"of another ledger")])
    beyond, _ = runs.PLAIN[2](ledger_id, 20, 19, 0, [(b"", b"behind a gap")])
    # An older copy of the first, and something of another ledger, lie between the first and the rest.
    laid = [packed[0], *strange, packed[0], *packed[1:], *beyond]
    stored, _ = records.PLAIN[1](seed, start, 5 << 32, laid, {})

    def cut(arguments: tuple[int, int, bytes, int, int], count_max: int = 99) -> list[bytes]:
        begins, ends = records.PLAIN[2](*arguments, count_max)
        assert twins.log_run(*arguments, count_max) == (begins, ends)
        return [arguments[2][begin:end] for begin, end in zip(begins, ends, strict=True)]

    assert cut((seed, start, stored, ledger_id, 3)) == packed
    for count_max in range(1, len(packed) + 1):
        assert cut((seed, start, stored, ledger_id, 3), count_max) == packed[:count_max]
    for harmed in (damaged(stored, data), stored[: data.draw(st.integers(0, len(stored)))], b"\x00" + stored):
        found = cut((seed, start, harmed, ledger_id, 3))
        assert found == packed[: len(found)]
    for wrong in ((start + 1, stored, ledger_id, 3), (start, stored, ledger_id + 1, 3), (start, stored, ledger_id, 4)):
        assert cut((seed, *wrong)) == []


def damaged(stored: bytes, data: st.DataObject) -> bytes:
    at = data.draw(st.integers(0, len(stored) - 1))
    return stored[:at] + bytes([stored[at] ^ data.draw(st.integers(1, 255))]) + stored[at + 1 :]


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**62), BODIES, BODIES)
def test_one_packed_entry_is_that_of_a_run(ledger_id: int, entry_id: int, front: bytes, message: bytes) -> None:
    size = len(front) + len(message)
    packed, length = runs.PLAIN[2](ledger_id, entry_id, entry_id - 1, 7, [(front, message)])
    assert length == 7 + size
    for pack in (runs.PLAIN[4], runs.pack_entry):
        assert pack(ledger_id, entry_id, entry_id - 1, length, front, message) == packed[0]


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**62), BODIES, BODIES)
def test_one_entry_is_packed_alike(twins: ModuleType, ledger_id: int, entry_id: int, front: bytes, body: bytes) -> None:
    arguments = (ledger_id, entry_id, entry_id - 1, 12345, front, body)
    assert twins.pack_entry(*arguments) == runs.PLAIN[4](*arguments)


@given(st.integers(0, 2**45), UINT64)
def test_the_front_of_an_entry_is_written_alike(twins: ModuleType, timestamp_ms: int, index: int) -> None:
    assert twins.entry_front(timestamp_ms, index) == broker_entry.PLAIN[0](timestamp_ms, index)


@given(st.lists(st.tuples(UINT64, st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1), UINT64, st.just(0) | UINT64)))
def test_receipts_of_any_producers_are_written_alike(
    twins: ModuleType, receipts: list[tuple[int, int, int, int, int]]
) -> None:
    plain = hot.PLAIN[0](receipts)
    assert twins.frame_single_receipts(receipts) == plain
    alone = [
        hot.ReceiptEncoder(producer_id).encode_plainly(ledger_id & 2**64 - 1, entry_id & 2**64 - 1, [(sequence, high)])
        for producer_id, ledger_id, entry_id, sequence, high in receipts
    ]
    assert plain == b"".join(alone)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), min_size=1), st.data())
def test_runs_among_entries_of_many_ledgers_are_found_alike(
    twins: ModuleType, ids: list[tuple[int, int]], data: st.DataObject
) -> None:
    entries = [ledger.to_bytes(8, "big") + entry.to_bytes(8, "big") + b"rest" for ledger, entry in ids]
    first = data.draw(st.integers(0, len(ids) - 1))
    last = data.draw(st.integers(first, len(ids) - 1))
    found = entry_batches.PLAIN[2](entries, first, last)
    assert twins.entry_runs(entries, first, last) == found
    told = [(ledger, entry) for ledger, start, end in found for entry in range(start, end + 1)]
    assert sorted(told) == sorted(ids[first : last + 1])
    for ledger in range(4):
        assert [entry for name, entry in told if name == ledger] == [e for n, e in ids[first : last + 1] if n == ledger]


SENDS = st.tuples(UINT64, UINT64, st.integers(0, 2**31 - 1), BODIES)


@given(st.lists(SENDS), st.integers(0, 40), st.integers(-1, 2**50), st.integers(0, 2**45))
def test_a_run_is_made_ready_alike(
    twins: ModuleType, run: list[tuple[int, int, int, bytes]], bytes_max: int, last_index: int, timestamp_ms: int
) -> None:
    arguments: tuple[Any, ...] = (object(), run, bytes_max, last_index, timestamp_ms)
    assert twins.ready_run(*arguments) == send_run.PLAIN[0](*arguments)


@given(st.lists(st.tuples(st.sampled_from("ab"), UINT64, UINT64, st.integers(0, 2**40), st.integers(1, 2**31))))
def test_what_is_answered_together_is_taken_alike(
    twins: ModuleType, waiting: list[tuple[str, int, int, int, int]]
) -> None:
    plain: deque[Any] = deque(waiting)
    compiled_ones = deque(waiting)
    while plain:
        for count_max in (1, 3, 99):
            if plain:
                found = send_run.PLAIN[1](plain, count_max)
                assert twins.take_answered(compiled_ones, count_max) == found
                assert plain == compiled_ones
                assert 1 <= len(found[0]) <= count_max


@given(st.lists(st.tuples(BODIES, BODIES) | st.tuples(BODIES) | st.lists(BODIES, min_size=2, max_size=2), max_size=3))
def test_what_can_be_packed_together_is_told_alike(twins: ModuleType, entries: list[Any]) -> None:
    found = all(isinstance(parts, tuple) and len(parts) == 2 for parts in entries)
    assert runs.PLAIN[5](entries) is twins.are_plain(entries) is found
    assert not twins.are_plain([*entries, (b"front", memoryview(b"body"))])


@given(st.lists(st.integers(-1, 2), max_size=3), st.lists(st.sampled_from([32, 40, 31, 41]), max_size=3))
def test_consecutive_entries_are_told_alike(twins: ModuleType, ids: list[int], sizes: list[int]) -> None:
    entries = [
        (5).to_bytes(8, "big") + entry_id.to_bytes(8, "big", signed=True) + bytes(size - 16)
        for entry_id, size in zip(ids, sizes, strict=False)
    ]
    plain = entry_batches.PLAIN[3]
    for ledger_id, first in ((5, -1), (5, 0), (4, 0)):
        found = plain(entries, ledger_id, first, 40)
        assert twins.are_consecutive(entries, ledger_id, first, 40) == found
        in_order = ids[: len(entries)] == list(range(first, first + len(entries)))
        fits = all(32 <= len(entry) <= 40 for entry in entries)
        assert found == (not entries or (ledger_id == 5 and in_order and fits))


def test_compiled_loops_refuse_what_is_no_bytes(twins: ModuleType) -> None:
    wrong: list[Callable[[], object]] = [
        lambda: twins.read_sends([(bytearray(b"x" * 9), b"body")], 0, []),
        lambda: twins.read_sends([[b"x", b"y"]], 0, []),
        lambda: twins.pack_entries(1, 0, -1, 0, [(b"front", memoryview(b"body"))]),
        lambda: twins.pack_entry(1, 0, -1, 0, b"front", memoryview(b"body")),
        lambda: twins.entry_runs([memoryview(b"entry of sixteen or more")], 0, 0),
        lambda: twins.frame_single_receipts([[1, 2, 3, 4, 5]]),
        lambda: twins.frame_single_receipts([(1, 2, 3, 4, "five")]),
        lambda: twins.journal_records(0, 0, 0, [memoryview(b"entry")]),
        lambda: twins.log_records(0, 0, 0, ["an entry of more than 16"], {}),
        lambda: twins.entries_within([memoryview(b"entry")], 0, 9),
        lambda: twins.frame_messages(1, -1, -1, True, ((Stored(memoryview(b"")), (1, 2), Shape(0), 1, (), 0),), 9),
        lambda: twins.frame_messages(1, -1, -1, True, [(1, 2)], 9),
        lambda: twins.read_ack(memoryview(b"\x08\x0a\x52")),
        lambda: twins.count_intact(1, 0, [memoryview(b"entry")]),
        lambda: twins.log_run(0, 0, bytearray(b"record"), 1, 0, 9),
        lambda: twins.are_consecutive([None], 1, 0, 99),
        lambda: twins.ready_run(None, [(1, 0, 1, memoryview(b"body"))], 99, 0, 0),
        lambda: twins.ready_run(None, [None], 99, 0, 0),
        lambda: twins.take_answered(deque([["producer", 1, 0, 9, 1]]), 1),
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()


def test_compiled_loops_of_another_edition_are_left_aside(
    twins: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("MAGNETAR_PURE", raising=False)
    assert compiled.load() is twins
    monkeypatch.setattr(compiled, "EDITION", compiled.EDITION + 1)
    assert [compiled.load(), compiled.load()] == [None, None]
    assert caplog.text.count("make compile") == 1
