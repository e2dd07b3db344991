# SPDX-License-Identifier: Apache-2.0
"""Every decoder reads or refuses hostile bytes, in bounded memory; more of them with `make fuzz`."""

import subprocess
import sys
from random import Random

import pytest

from magnetar.errors import BadFrame
from tests.fuzz.mutation import BYTES_MAX, hostile, smaller
from tests.fuzz.run import failure
from tests.fuzz.targets import TARGETS, Target

INPUTS = 40


def test_every_decoder_reads_or_refuses_hostile_bytes() -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", "--inputs", str(INPUTS), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{INPUTS * len(TARGETS):,} inputs" in done.stdout


def test_names_of_targets_are_their_own() -> None:
    assert len({target.name for target in TARGETS}) == len(TARGETS)


def test_a_refusal_is_no_failure_and_anything_else_is() -> None:
    def refuses(data: bytes) -> None:
        raise BadFrame("no")

    def breaks(data: bytes) -> None:
        raise KeyError(data)

    assert failure(Target("a", refuses, (b"",)), b"x") == ""
    assert failure(Target("a", breaks, (b"",)), b"x").startswith("KeyError")


@pytest.mark.parametrize("seed", range(20))
def test_hostile_bytes_are_bounded_and_repeatable(seed: int) -> None:
    good = (b"abc" * 100, b"")
    first, again = Random(seed), Random(seed)
    made = [hostile(good, first) for _ in range(20)]
    assert made == [hostile(good, again) for _ in range(20)]
    assert max(map(len, made)) <= BYTES_MAX


def test_a_failing_input_is_made_small() -> None:
    assert smaller(b"a" * 500 + b"!" + b"b" * 300, lambda data: b"!" in data) == b"!"
