# SPDX-License-Identifier: Apache-2.0
"""What the sink's log says can be read back, and sequence ids go on from batch to batch."""

import pytest

from magnetar.errors import DamagedRecord
from magnetar.spark.manifest import Manifest, StagedAttempt, Target, decide
from magnetar.spark.offsets import BEFORE_ALL, Place


def attempt(name: str, entry: int, **counts: int) -> StagedAttempt:
    return StagedAttempt(name, Place(1, entry), Place(1, entry + 1), counts, 7)


@pytest.mark.feature("F-SPK-06")
def test_sequences_go_on_and_empty_attempts_are_left_out() -> None:
    first = decide(
        None, 0, [attempt("b", 3, x=2), attempt("a", 0, x=1, y=4), attempt("c", 9)], {"x": BEFORE_ALL, "y": BEFORE_ALL}
    )
    assert [one.producer for one in first.attempts] == ["a", "b"]
    assert first.targets == {"x": Target(0, 3, BEFORE_ALL), "y": Target(0, 4, BEFORE_ALL)}
    assert (first.first, first.last) == (Place(1, 0), Place(1, 4))
    second = decide(first.done(), 1, [attempt("d", 20, x=10)], {"x": Place(5, 6)})
    assert second.targets == {"x": Target(3, 10, Place(5, 6))}
    assert second.next_sequences == {"x": 13, "y": 4}


def test_a_record_is_read_back() -> None:
    record = decide(None, 5, [attempt("a", 0, x=1)], {"x": Place(2, 3)})
    assert Manifest.from_bytes(record.to_bytes()) == record
    assert Manifest.from_bytes(record.done().to_bytes()).is_done


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format":2}', b'{"format":1,"batch":"x"}'])
def test_what_is_no_record_is_told(data: bytes) -> None:
    with pytest.raises(DamagedRecord):
        Manifest.from_bytes(data)


def test_a_batch_follows_one_of_its_own_query_and_comes_at_most_once_again() -> None:
    last = decide(None, 5, [attempt("a", 0, x=1)], {"x": Place(2, 3)}, "q").done()
    assert Manifest.from_bytes(last.to_bytes()).query == "q"
    # Records that were written before queries were noted have none.
    assert Manifest.from_bytes(last.to_bytes().replace(b',"query":"q"', b"")).query == ""
    for batch, query in ((5, "q"), (6, "q"), (9, "")):
        last.check_follower(batch, query)
    for batch, query in ((4, "q"), (5, "r"), (6, "r"), (0, "")):
        with pytest.raises(DamagedRecord, match="another sinkId"):
            last.check_follower(batch, query)
