# SPDX-License-Identifier: Apache-2.0
"""Decoders that are wrong, each in its way: for tests that the run notices.

    python -m tests.fuzz.planted NAME FOLDER [what tests.fuzz.run takes]

Carries.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from tests.fuzz import run
from tests.fuzz.target import Target


def spin(data: bytes) -> None:
    """For ever, and catching whatever can be caught."""
    while data != b"good":
        with contextlib.suppress(Exception):
            sum(range(1_000))


def _hang(data: bytes) -> None:
    """As native code does that neither returns nor looks for signals."""
    while data != b"good":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})
        time.sleep(1)


def _crash(data: bytes) -> None:
    if data != b"good":
        os.kill(os.getpid(), signal.SIGSEGV)


def _believe(data: bytes) -> None:
    if data != b"good":
        bytearray(1 << 31)


PLANTED: Final = {
    "spins": Target("spins", spin, (b"good",)),
    "hangs": Target("hangs", _hang, (b"good",)),
    "crashes": Target("crashes", _crash, (b"good",)),
    "believes": Target("believes", _believe, (b"good",)),
}


if __name__ == "__main__":
    run.KEPT = Path(sys.argv[2])
    if sys.argv[1] == "hangs":
        run.SILENT_SECONDS_MAX = 1.0
    run.SMALLER_SECONDS_MAX = 0.5
    run.INPUT_SECONDS_MAX = 0.1
    sys.exit(run.main(sys.argv[3:], [PLANTED[sys.argv[1]]]))
