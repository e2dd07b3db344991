# SPDX-License-Identifier: Apache-2.0
"""Lists of topics: patterns, hashes as official clients compute them, and differences."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.topic_list import ListView, TopicPattern, check_not_a_log, hash_of, is_system_topic
from magnetar.broker.topic_watches import matching
from magnetar.errors import BadName, NotAuthorized
from magnetar.names import NamespaceName, TopicName


def topics(*names: str) -> list[TopicName]:
    return [TopicName.parse(name) for name in names]


@pytest.mark.feature("B-12")
def test_the_hash_is_the_one_that_official_clients_compute() -> None:
    # Guava's crc32c of "persistent://public/default/a,persistent://public/default/b" and of nothing, as Java prints it.
    assert hash_of([]) == "00000000"
    assert hash_of(["123456789"]) == "839206e3"
    assert hash_of(["b", "a"]) == hash_of(["a", "b"]) != hash_of(["a"])


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("public/default/t.*", "persistent://public/default/t1", True),
        ("persistent://public/default/t.*", "persistent://public/default/t1", True),
        ("persistent://public/default/t.*", "non-persistent://public/default/t1", True),
        ("non-persistent://public/default/t.*", "persistent://public/default/t1", True),
        ("public/default/t", "persistent://public/default/t1", False),
        ("public/default/t", "persistent://public/default/t-partition-7", True),
        ("public/default/t1|public/default/u", "persistent://public/default/u", True),
        (".*", "persistent://any/where/x", True),
    ],
)
def test_patterns_meet_names_without_domain_and_partition(pattern: str, name: str, is_match: bool) -> None:
    assert TopicPattern(pattern).matches(TopicName.parse(name)) is is_match


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "kafka://x/.*", "a{1,1001}{1,1001}"])
def test_patterns_that_cannot_be_used_are_refused(pattern: str) -> None:
    with pytest.raises(BadName, match="Topic pattern"):
        TopicPattern(pattern)


def test_a_pattern_made_to_backtrack_costs_nothing() -> None:
    """F143: an engine that tries one way after another would need longer than the universe has."""
    pattern = TopicPattern("(a+)+$")
    assert not pattern.matches(TopicName.parse("persistent://a/a/" + "a" * 1_000 + "!"))


def test_a_hundred_thousand_names_are_matched_in_slices() -> None:
    """F143: others have their turn after each slice, whatever the pattern."""

    async def scenario() -> None:
        names = [NamespaceName("public", "default").topic(f"t-{number}") for number in range(100_000)]
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        assert len(await matching(TopicPattern("public/default/(t-+)+[0-9]*7"), names)) == 10_000
        other.cancel()
        assert turns >= 50

    asyncio.run(scenario())


@pytest.mark.feature("F-TOP-16")
def test_what_brokers_make_for_themselves_is_not_shown() -> None:
    for name in (
        "persistent://public/default/__change_events",
        "persistent://public/default/__change_events-partition-3",
        "persistent://pulsar/system/transaction_coordinator_assign-partition-0",
        "persistent://public/default/t-sub__transaction_pending_ack",
    ):
        assert is_system_topic(TopicName.parse(name)), name
    assert not is_system_topic(TopicName.parse("persistent://public/default/__my_own"))


def test_a_view_tells_differences_alone() -> None:
    view = ListView(TopicPattern("public/default/t.*"))
    view.replace(view.pattern.filter(topics("t1", "u1")))
    assert view.names == ["persistent://public/default/t1"]
    assert not view.change(topics("t1", "u2"), topics("u1", "t9"))
    change = view.change(topics("t2"), topics("t1"))
    assert change == (["persistent://public/default/t2"], ["persistent://public/default/t1"])
    assert view.hash == hash_of(["persistent://public/default/t2"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 8))), max_size=10))
def test_differences_add_up_to_the_list(rounds: list[tuple[bool, set[int]]]) -> None:
    view = ListView(TopicPattern(".*"))
    known: set[str] = set()
    present: set[int] = set()
    for is_whole, numbers in rounds:
        if is_whole:
            change = view.replace(view.pattern.filter(topics(*(f"t{number}" for number in sorted(numbers)))))
        else:
            came = [TopicName.parse(f"t{number}") for number in sorted(numbers)]
            went = [TopicName.parse(f"t{number}") for number in sorted(present - numbers)]
            change = view.change(came, went)
        present = numbers
        known = (known - set(change.deleted)) | set(change.new)
        assert known == {f"persistent://public/default/t{number}" for number in numbers}
        assert view.hash == hash_of(known)


@pytest.mark.feature("F-SEC-02")
def test_nobody_opens_the_logs_of_transactions_as_a_topic() -> None:
    for name in ("pulsar/system/__transaction_log_0", "public/default/t-partition-0-s__transaction_pending_ack"):
        with pytest.raises(NotAuthorized, match="log of the broker's own"):
            check_not_a_log(TopicName.parse(f"persistent://{name}"))
    for name in ("public/default/__transaction_log_0", "pulsar/system/other", "a/b/__transaction_pending_acks"):
        check_not_a_log(TopicName.parse(f"persistent://{name}"))
