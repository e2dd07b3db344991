# SPDX-License-Identifier: Apache-2.0
"""A few rounds of what `make client-soak` does a thousand times."""

from tests.client_soak import fork_with_live_producers, live_many_lives


def test_forks_harm_neither_the_parent_nor_the_child() -> None:
    fork_with_live_producers(12)


def test_lives_of_a_client_leave_nothing_behind() -> None:
    live_many_lives(30)
