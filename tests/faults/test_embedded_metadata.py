# SPDX-License-Identifier: Apache-2.0
"""The embedded metadata store in a real process on a real disk, killed again and again."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.faults.metadata_writer import COUNTERS

ROUNDS = 8


@pytest.mark.feature("F-MD-01")
def test_every_answered_write_survives_kill_9(tmp_path: Path) -> None:
    answered = [0] * COUNTERS
    random = Random(11)
    for _ in range(ROUNDS):
        answers_before_kill = random.randrange(1, 600)
        with subprocess.Popen(
            [sys.executable, "-m", "tests.faults.metadata_writer", str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            found = [int(number) for number in process.stdout.readline().split()[1:]]
            assert len(found) == COUNTERS, "the store did not open"
            for counter in range(COUNTERS):
                # At most the one write that was under way may be there beyond what was answered.
                assert answered[counter] <= found[counter] <= answered[counter] + 1
            answered = found
            for line in process.stdout:
                _, counter_text, number = line.split()
                answered[int(counter_text)] = int(number)
                answers_before_kill -= 1
                if answers_before_kill == 0:
                    process.kill()
            # The pipe still gave what was printed before the kill: those were answered as well.
    assert sum(answered) > ROUNDS
