# SPDX-License-Identifier: Apache-2.0
"""Plain adds: cut many at a time as they would be one by one, answered likewise, and compiled as plain."""

import os
from importlib import import_module
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.bookie import entry_batches
from magnetar.wire import compiled
from magnetar.wire.bookkeeper import plain_adds, v2
from magnetar.wire.bookkeeper.packet import PacketCutter
from magnetar.wire.bookkeeper.plain_adds import PlainAdds
from magnetar.wire.bookkeeper.request_cutter import RequestCutter

KEYS = [b"k" * 20, b"o" * 20]
IDS = st.integers(-1, 3) | st.integers(-(2**63), 2**63 - 1)
BYTES_MAX = 100


@pytest.fixture(scope="module")
def twins() -> ModuleType:
    if not compiled.is_built():
        sentence = "the compiled run loops are not built: `make compile` builds them"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)
    return import_module(compiled.MODULE)


def entry_of(ledger_id: int, entry_id: int, rest: bytes = b"") -> bytes:
    return ledger_id.to_bytes(8, "big", signed=True) + entry_id.to_bytes(8, "big", signed=True) + rest


ENTRIES = st.builds(entry_of, IDS, IDS, st.binary(max_size=40))


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Plain adds of two keys among recovery adds, reads, damaged packets, and sizes that lie."""
    packets = []
    for _ in range(draw(st.integers(0, 8))):
        entry, key = draw(ENTRIES), draw(st.sampled_from([KEYS[0], *KEYS]))
        packet = v2.add_front(len(entry), key) + entry
        match draw(st.integers(0, 9)):
            case 0:
                packet = packet[:4] + bytes([draw(st.integers(0, 3))]) + packet[5:]
            case 1:
                packet = packet[:6] + b"\x00\x02" + packet[8:]
            case 2:
                packet = v2.encode_read(1, 2)
            case 3:
                packet = draw(st.integers(0, 30) | st.just(2**31)).to_bytes(4, "big") + packet[4:]
        packets.append(packet)
    return b"".join(packets) + draw(st.binary(max_size=5))


def packets_of(requests: list[Any]) -> list[bytes]:
    """What was cut, as packets again."""
    packets = []
    for request in requests:
        if isinstance(request, PlainAdds):
            assert request.entries
            packets += [(v2.add_front(len(entry), request.master_key) + entry)[4:] for entry in request.entries]
        else:
            packets.append(request)
    return packets


@settings(max_examples=300)
@given(streams(), st.lists(st.integers(0, 2**16), max_size=6))
def test_requests_of_any_split_are_the_packets_that_came_in_their_order(stream: bytes, cuts: list[int]) -> None:
    whole, parts = PacketCutter(BYTES_MAX), RequestCutter(BYTES_MAX)
    expected = whole.feed(stream)
    edges = [0, *sorted(at % (len(stream) + 1) for at in cuts), len(stream)]
    requests = [each for start, until in pairwise(edges) for each in parts.cut(stream[start:until])]
    assert packets_of(requests) == expected
    assert str(parts.fault) == str(whole.fault)
    assert parts.cut(b"") == []


def test_adds_that_follow_each_other_are_cut_together_also_when_the_first_came_in_two_pieces() -> None:
    entries = [entry_of(ledger_id, 7, b"x" * 20) for ledger_id in range(6)]
    packets = [v2.add_front(len(entry), KEYS[number // 4]) + entry for number, entry in enumerate(entries)]
    stream = b"".join(packets)
    cutter = RequestCutter()
    assert cutter.cut(stream) == [PlainAdds(KEYS[0], entries[:4]), PlainAdds(KEYS[1], entries[4:])]
    middle = len(packets[0]) + 9
    assert cutter.cut(stream[:middle]) == [PlainAdds(KEYS[0], entries[:1])]
    assert cutter.cut(stream[middle:]) == [PlainAdds(KEYS[0], entries[1:4]), PlainAdds(KEYS[1], entries[4:])]


@given(streams(), st.integers(0, 3), st.integers(30, 120), st.sampled_from([b"", *KEYS, b"short"]))
def test_compiled_cutting_of_adds_is_the_plain_one(
    twins: ModuleType, stream: bytes, start: int, size_max: int, key: bytes
) -> None:
    fast: list[bytes] = []
    plain: list[bytes] = []
    found = twins.cut_adds(stream, start, size_max, key, fast)
    assert found == plain_adds.PLAIN[0](stream, start, size_max, key, plain)
    assert fast == plain


@given(st.integers(-(2**31), 2**31 - 1), st.lists(ENTRIES, max_size=5))
def test_answers_are_those_of_each_add_by_itself(twins: ModuleType, code: int, entries: list[bytes]) -> None:
    expected = b"".join(v2.encode_add_response(code, *entry_batches.ids_of(entry)) for entry in entries)
    assert twins.answer_adds(code, entries) == plain_adds.PLAIN[1](code, entries) == expected


@given(
    st.lists(st.builds(entry_of, st.integers(-1, 4), st.integers(-1, 3), st.binary(max_size=40)), max_size=12),
    st.integers(0, 2),
    st.integers(20, 60),
)
def test_compiled_batches_are_the_plain_ones(
    twins: ModuleType, entries: list[bytes], start: int, bytes_max: int
) -> None:
    start = min(start, len(entries))
    states: dict[int, Any] = {
        number: SimpleNamespace(open_to_adds=number != 3, master_key=KEYS[number // 4]) for number in range(5)
    }
    arguments = (states, KEYS[0], entries, start, bytes_max)
    fine = entry_batches.PLAIN[0](*arguments)
    assert twins.fine_ledgers(*arguments) == fine
    fast: dict[int, dict[int, bytes]] = {1: {2: b"old"}}
    plain: dict[int, dict[int, bytes]] = {1: {2: b"old"}}
    assert twins.put_entries(fast, fine, entries, start) == entry_batches.PLAIN[1](plain, fine, entries, start)
    assert fast == plain


def test_compiled_loops_refuse_what_is_no_bytes_or_too_short(twins: ModuleType) -> None:
    with pytest.raises(TypeError):
        twins.cut_adds(bytearray(b"chunk"), 0, 9, b"", [])
    with pytest.raises(TypeError):
        twins.answer_adds(0, [memoryview(bytes(16))])
    with pytest.raises(TypeError):
        twins.fine_ledgers({}, b"", [memoryview(bytes(40))], 0, 50)
    with pytest.raises(TypeError):
        twins.put_entries({}, [1], [memoryview(bytes(40))], 0)
    with pytest.raises(ValueError, match="two ids"):
        twins.answer_adds(0, [b"short"])
    with pytest.raises(ValueError, match="two ids"):
        twins.put_entries({}, [1], [b"short"], 0)
    with pytest.raises(ValueError, match="fewer entries"):
        twins.put_entries({}, [1, 2], [bytes(40)], 0)
