# SPDX-License-Identifier: Apache-2.0
"""Streams are their names' own, and the same everywhere."""

from magnetar.runtime.chance import fresh_seed, stream


def test_a_stream_is_the_same_on_every_machine() -> None:
    assert stream(42, "a").randrange(2**32) == 349089723


def test_streams_of_other_names_and_seeds_differ() -> None:
    draws = {
        stream(seed, *names).random()
        for seed in range(10)
        for names in ((), ("a",), ("b",), ("a", "b"), ("ab",), ("b", "a"))
    }
    assert len(draws) == 60


def test_a_draw_in_one_stream_does_not_change_another() -> None:
    one, other = stream(1, "one"), stream(1, "other")
    expected = stream(1, "other").random()
    one.random()
    assert other.random() == expected


def test_fresh_seeds_are_fresh() -> None:
    assert fresh_seed() != fresh_seed()
