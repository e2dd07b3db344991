# SPDX-License-Identifier: Apache-2.0
"""Named streams of chance from one seed.

Each use has its own stream, so that one more draw in one place does not change what all the others draw. A stream is
for jitter, choice and simulation, never for secrets. Carries.
"""

import hashlib
import os
from random import Random


def fresh_seed() -> int:
    return int.from_bytes(os.urandom(8), "big")


def stream(seed: int, *names: str) -> Random:
    """The stream of this name: the same seed and names give the same draws, on every machine."""
    text = "\0".join((str(seed), *names))
    return Random(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))
