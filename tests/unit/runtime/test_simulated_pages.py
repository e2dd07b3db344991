# SPDX-License-Identifier: Apache-2.0
"""Pages against a stupid twin: byte by byte, what may be there after a power loss."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.runtime.simulated_pages import Loss, Pages

_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 1200), st.binary(min_size=1, max_size=1500)),
        st.tuples(st.just("resize"), st.integers(0, 1500), st.just(b"")),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
        st.tuples(st.just("failed-sync"), st.just(0), st.just(b"")),
    ),
    max_size=12,
)


def apply(content: bytearray, kind: str, number: int, data: bytes) -> None:
    if kind == "write":
        content.extend(bytes(max(0, number - len(content))))
        content[number : number + len(data)] = data
    elif number < len(content):
        del content[number:]
    else:
        content.extend(bytes(number - len(content)))


@settings(max_examples=150, deadline=None)
@given(_OPERATIONS, st.integers(0, 1000))
def test_a_power_loss_leaves_only_what_was_synced_or_written_since(
    operations: list[tuple[str, int, bytes]], seed: int
) -> None:
    pages = Pages()
    twin = bytearray()
    # What each byte may be: what was synced there, what was written there since, or nothing.
    possible: list[set[int]] = []
    sizes = {0}
    pending = 0
    for kind, number, data in operations:
        if kind == "sync":
            pages.sync(pages.mark())
            if not pending:
                continue
            pending = 0
        elif kind == "failed-sync":
            pages.forget(pages.mark())
            pending = 0
        elif kind == "write":
            pages.write(number, data)
            apply(twin, kind, number, data)
            pending += 1
        else:
            pages.resize(number)
            apply(twin, kind, number, data)
            pending += 1
        possible.extend({0} for _ in range(len(twin) - len(possible)))
        for offset, byte in enumerate(twin):
            possible[offset].add(byte)
        sizes.add(len(twin))
        assert pages.visible == twin
    durable_before = bytes(pages.durable)
    clean = pages.is_clean()
    pages.lose_power(Random(seed))
    assert pages.visible == pages.durable
    assert pages.is_clean()
    assert len(pages.durable) <= max(sizes)
    assert all(byte in possible[offset] for offset, byte in enumerate(pages.durable))
    if clean:
        assert pages.durable == durable_before


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=3000), st.lists(st.binary(min_size=1, max_size=2000), max_size=5), st.integers())
def test_synced_bytes_survive_what_is_appended_after_them(synced: bytes, later: list[bytes], seed: int) -> None:
    pages = Pages()
    pages.write(0, synced)
    pages.sync(pages.mark())
    for data in later:
        pages.write(len(pages), data)
    assert pages.is_durable(0, len(synced))
    pages.lose_power(Random(seed))
    assert pages.durable[: len(synced)] == synced


def test_every_kind_of_loss_happens() -> None:
    seen = set()
    for seed in range(200):
        pages = Pages(b"old" * 1000)
        pages.write(0, b"new" * 2000)
        pages.write(6000, b"more" * 100)
        pages.resize(7000)
        seen.add(pages.lose_power(Random(seed)))
    assert seen == set(Loss)


def test_a_torn_write_can_end_at_any_byte() -> None:
    lengths = set()
    for seed in range(2000):
        pages = Pages()
        pages.write(0, b"0123456789")
        if pages.lose_power(Random(seed)) is Loss.TORN_WRITE:
            lengths.add(len(pages.durable))
    assert lengths == set(range(11))


def test_after_a_failed_sync_bytes_are_readable_until_they_are_not() -> None:
    pages = Pages(b"....")
    pages.write(0, b"lost")
    pages.forget(pages.mark())
    pages.sync(pages.mark())
    assert pages.visible == b"lost"
    pages.evict()
    assert pages.visible == b"...."


def test_a_sync_covers_only_what_came_before_it() -> None:
    pages = Pages()
    pages.write(0, b"one")
    mark = pages.mark()
    pages.write(3, b"two")
    pages.sync(mark)
    assert pages.durable == b"one"
    assert pages.is_durable(0, 3)
    assert not pages.is_durable(0, 6)
    pages.sync(mark)
    assert pages.durable == b"one"


def test_lies_of_the_device() -> None:
    pages = Pages(bytes(8))
    pages.write_lost(0, b"gone")
    pages.write_elsewhere(0, b"Here", 4)
    pages.sync(pages.mark())
    assert pages.visible == b"Here" + bytes(4)
    pages.evict()
    assert pages.visible == bytes(4) + b"Here"


def test_damage_hits_medium_and_memory_but_never_grows_a_file() -> None:
    pages = Pages(b"abcdef")
    pages.damage(4, b"XYZ")
    assert pages.visible == pages.durable == b"abcdXY"
    pages.damage(100, b"x")
    assert len(pages) == 6


@pytest.mark.parametrize("length", [0, 3, 10])
def test_resize(length: int) -> None:
    pages = Pages(b"abcdef")
    pages.resize(length)
    assert bytes(pages.visible) == (b"abcdef" + bytes(10))[:length]
