# SPDX-License-Identifier: Apache-2.0
"""A thread that others wait for asks the kernel for short turns on its processor.

Threads that want the same processor take turns of one to three milliseconds, and one that wakes up may wait for the end
of somebody's turn: a sync has ended, and the loop hears of it later than the sync took. Linux 6.12 and newer let a
thread ask for shorter turns, without any privilege: it is let in sooner and gives way as soon, and its share of the
processor stays the same. Elsewhere nothing changes. Carries.
"""

import ctypes
import os
import platform
import sys
from struct import Struct
from typing import Final

TURN_NS: Final = 100_000
"""The shortest that the kernel grants."""

# size, policy, flags, nice, priority, runtime (of a plain thread: its turn), deadline, period
_ATTRIBUTES: Final = Struct("=IIQiIQQQ")
_SET_ATTRIBUTES: Final = {"x86_64": 314, "aarch64": 274}
# What this thread starts begins with turns of the usual length; a raised priority would be reset, too.
_NOT_INHERITED: Final = 1


def ask_for_short_turns() -> bool:
    """For the calling thread; whether the kernel took the wish, which older ones do and ignore."""
    number = _SET_ATTRIBUTES.get(platform.machine())
    if not sys.platform.startswith("linux") or number is None:
        return False
    if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    flags = _NOT_INHERITED if nice >= 0 else 0
    wish = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, flags, nice, 0, TURN_NS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, wish, 0) == 0)
