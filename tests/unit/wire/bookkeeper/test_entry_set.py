# SPDX-License-Identifier: Apache-2.0
"""Sets of entry ids: Apache BookKeeper's bytes, groups of runs read, lies about sizes named."""

from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadCommand, UnsupportedVersion
from magnetar.wire.bookkeeper import entry_set


def stored(*groups: tuple[int, int, int, int]) -> bytes:
    return pack(">II", 0, len(groups)).ljust(64, b"\x00") + b"".join(pack(">qqii", *group) for group in groups)


# As Apache BookKeeper's AvailabilityOfEntriesOfLedger writes them: one run per group, without a period.
GOLDEN = [
    ([], stored()),
    ([0], stored((0, 0, 1, 0))),
    ([0, 1, 2, 3, 4, 5], stored((0, 0, 6, 0))),
    ([0, 3, 6], stored((0, 0, 1, 0), (3, 3, 1, 0), (6, 6, 1, 0))),
    ([5, 10, 11, 12, 20], stored((5, 5, 1, 0), (10, 10, 3, 0), (20, 20, 1, 0))),
]


@pytest.mark.parametrize(("entry_ids", "data"), GOLDEN)
def test_bytes_are_those_of_apache_bookkeeper(entry_ids: list[int], data: bytes) -> None:
    assert entry_set.encode(entry_ids) == data
    assert entry_set.decode(data, 10) == entry_ids


@given(st.sets(st.integers(0, 60) | st.integers(0, 2**62)).map(sorted))
def test_any_set_comes_back(entry_ids: list[int]) -> None:
    assert entry_set.decode(entry_set.encode(entry_ids), len(entry_ids)) == entry_ids


def test_runs_at_equal_distances_are_read() -> None:
    assert entry_set.decode(stored((2, 12, 2, 5)), 10) == [2, 3, 7, 8, 12, 13]
    assert entry_set.decode(stored((0, 3, 1, 3), (9, 9, 2, 0)), 10) == [0, 3, 9, 10]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no whole header"),
        (bytes(63), "no whole header"),
        (pack(">II", 0, 2**32 - 1).ljust(64, b"\x00"), "do not fit"),
        (stored((0, 0, 1, 0))[:-1], "do not fit"),
        (stored((0, 0, 0, 0)), "impossible"),
        (stored((-1, 0, 1, 1)), "impossible"),
        (stored((5, 4, 1, 1)), "impossible"),
        (stored((0, 9, 3, 2)), "impossible"),
        (stored((0, 9, 1, 0)), "impossible"),
        (stored((0, 0, 2**31 - 1, 0)), "more than 10"),
        (stored((0, 2**62, 1, 1)), "more than 10"),
        (stored((5, 5, 2, 0), (6, 6, 1, 0)), "do not rise"),
    ],
)
def test_lies_are_named_before_memory_is_taken(data: bytes, text: str) -> None:
    with pytest.raises(BadCommand, match=text):
        entry_set.decode(data, 10)


def test_a_later_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="version 1"):
        entry_set.decode(pack(">II", 1, 0).ljust(64, b"\x00"), 10)


@settings(max_examples=200)
@given(st.binary(max_size=80).map(lambda data: pack(">II", 0, len(data) // 24).ljust(64, b"\x00") + data))
def test_any_bytes_are_a_set_or_a_bad_command(data: bytes) -> None:
    try:
        entry_ids = entry_set.decode(data, 100)
    except BadCommand:
        return
    assert entry_ids == sorted(set(entry_ids))
