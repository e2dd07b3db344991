# SPDX-License-Identifier: Apache-2.0
"""The power fails at any call of a short life: every state that the medium may be in recovers with nothing missing.

The life is recorded once, call by call, from the real kernel; then each beginning of it is played back, what no sync
had covered is lost in seeded parts (reordered, torn, zeroed, names without files and files without names), and the real
storage starts on what is left. `make power-loss` takes every beginning and several losses of each; a plain run a few.
"""

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.faults.medium import Medium
from tests.faults.power_loss_program import CHECKS, Promises
from tests.faults.recorded_calls import Kind, Recorded, record

_ALL = os.environ.get("POWER_LOSS") == "all"
_LOSSES = 6 if _ALL else 1
_BEGINNINGS = None if _ALL else 40


def recorded(kind: str, directory: Path, strace: str) -> list[Recorded]:
    directory.mkdir()
    command = [sys.executable, "-m", "tests.faults.power_loss_program", kind, str(directory)]
    calls = record(command, directory, strace)
    assert [call for call in calls if call.kind is Kind.SAID], "it promised nothing"
    return calls


def beginnings(calls: list[Recorded]) -> Iterator[int]:
    """Where the power may fail: before each call that changes something, and after the last."""
    places = [number for number, call in enumerate(calls) if call.kind is not Kind.SAID] + [len(calls)]
    step = 1 if _BEGINNINGS is None else max(1, len(places) // _BEGINNINGS)
    # Other ones of them in every step, the same in every run.
    yield from (places[min(start + start // step % step, len(places) - 1)] for start in range(0, len(places), step))


def state_after(calls: list[Recorded], count: int, seed: int, directory: Path) -> Promises:
    medium = Medium()
    medium.play(calls[:count])
    medium.lose_power(Random(seed))
    medium.lay_out(directory)
    return Promises.of(medium.said)


@pytest.mark.feature("F-BKS-34")
@pytest.mark.parametrize("kind", ["bookie", "metadata"])
def test_every_state_after_a_power_loss_recovers(
    kind: str, tmp_path: Path, needs: Callable[[str, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    calls = recorded(kind, tmp_path / "recorded", needs("strace", "apt install strace"))
    logging.getLogger("magnetar").setLevel(logging.CRITICAL)
    states = doubts = 0
    for count in beginnings(calls):
        for seed in range(_LOSSES):
            directory = tmp_path / "state"
            promises = state_after(calls, count, seed, directory)
            try:
                doubts += not asyncio.run(CHECKS[kind](str(directory), promises))
            except BaseException as error:
                error.add_note(f"the power failed before call {count}, {calls[count : count + 1]}, loss {seed}")
                raise
            shutil.rmtree(directory)
            states += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{kind}: {len(calls)} recorded calls, {states} states after a power loss, all recovered")
        sys.stdout.write(f", {doubts} by rebuilding the index\n")


@pytest.mark.feature("F-BKS-34")
@pytest.mark.parametrize("forgotten", ["journal/current/", "ledgers/current/"])
def test_a_sync_that_is_left_out_is_found(forgotten: str, tmp_path: Path, needs: Callable[[str, str], str]) -> None:
    """The trace of syncs is what durability rests on: without those of one directory, something promised is missing."""
    calls = recorded("bookie", tmp_path / "recorded", needs("strace", "apt install strace"))
    syncs = (Kind.SYNC_BEGINS, Kind.SYNC_ENDS)
    careless = [
        call._replace(kind=Kind.WRITE) if call.kind is Kind.WRITE_DURABLY and call.path.startswith(forgotten) else call
        for call in calls
        if not (call.kind in syncs and call.path.startswith(forgotten) and call.path.count("/") == 2)
    ]
    assert careless != calls
    logging.getLogger("magnetar").setLevel(logging.CRITICAL)
    for seed in range(30):
        directory = tmp_path / f"state-{seed}"
        # Both lives of the storage end at the same place: the clean one recovers, the careless one does not.
        count = len(careless) * (seed % 10 + 1) // 10
        promises = state_after(careless, count, seed, directory)
        try:
            asyncio.run(CHECKS["bookie"](str(directory), promises))
        except Exception:
            return
    raise AssertionError(f"nothing is missing without the syncs of {forgotten}")
