# SPDX-License-Identifier: Apache-2.0
"""Short turns on a processor: asked for by one thread, and not inherited by what it starts."""

import os
import sys
import threading
from collections.abc import Callable

import pytest

from magnetar.runtime.short_turns import ask_for_short_turns

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel of Linux is asked")


def on_a_thread(call: Callable[[], object]) -> list[object]:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found


def test_a_thread_that_asks_stays_a_plain_one_of_its_priority() -> None:
    def asked() -> tuple[bool, int, int]:
        os.setpriority(os.PRIO_PROCESS, 0, 3)
        return (
            ask_for_short_turns(),
            os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK,
            os.getpriority(os.PRIO_PROCESS, 0),
        )

    assert on_a_thread(asked) == [(True, os.SCHED_OTHER, 3)]


def test_asking_twice_is_asking_once() -> None:
    assert on_a_thread(lambda: (ask_for_short_turns(), ask_for_short_turns())) == [(True, True)]


def test_who_was_given_another_policy_keeps_it() -> None:
    def asked() -> tuple[bool, int]:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        return ask_for_short_turns(), os.sched_getscheduler(0)

    assert on_a_thread(asked) == [(False, os.SCHED_BATCH)]
