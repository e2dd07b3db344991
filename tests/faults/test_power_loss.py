# SPDX-License-Identifier: Apache-2.0
"""The power fails at any call of a short life: the states that the medium may be in recover with nothing missing.

The life is recorded once, call by call, from the real kernel; then each beginning of it is played back, what no sync
had covered is lost, and the real storage starts on what is left. Where a beginning has few operations that no sync
covers, every part of them is kept in turn; where it has more, and for what is torn or zeroed, parts are drawn from
seeds. For some states the start itself is recorded too, and loses its power at its own calls. `make power-loss` takes
every beginning and several losses of each; a plain run a few.
"""

import asyncio
import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from magnetar.errors import EntryUnknown
from tests.faults.medium import Medium, Operation
from tests.faults.power_loss_program import CHECKS, Promises
from tests.faults.recorded_calls import Kind, Recorded, record

_ALL = os.environ.get("POWER_LOSS") == "all"
# Losses drawn for each beginning.
_LOSSES = 6 if _ALL else 1
_BEGINNINGS = None if _ALL else 20
# A beginning with no more outcomes than this has each of them tried; in a plain run every so manieth beginning.
_OUTCOMES_MAX = 64 if _ALL else 8
_OUTCOMES_EVERY = 1 if _ALL else 5
# Where there are more, every operation is left out by itself, and each two at every so manieth beginning; at most so
# many of these.
_PAIRS_EVERY = 4 if _ALL else 1
_OMISSIONS_MAX = 200 if _ALL else 2
# Starts that lose their power, and at how many of their calls.
_STARTS = 12 if _ALL else 1
_START_BEGINNINGS = None if _ALL else 5
_KINDS = ["bookie", "plain-bookie", "metadata"]


def recorded(kind: str, directory: Path, strace: str, *, again: bool = False) -> list[Recorded]:
    directory.mkdir(exist_ok=again)
    command = [sys.executable, "-m", "tests.faults.power_loss_program", kind, str(directory)]
    calls = record([*command, "again"] if again else command, directory, strace)
    assert again or [call for call in calls if call.kind is Kind.SAID], "it promised nothing"
    return calls


def beginnings(calls: list[Recorded], count_max: int | None) -> Iterator[int]:
    """Where the power may fail: before each call that changes something, and after the last."""
    places = [number for number, call in enumerate(calls) if call.kind is not Kind.SAID] + [len(calls)]
    step = 1 if count_max is None else max(1, len(places) // count_max)
    # Other ones of them in every step, the same in every run.
    yield from (places[min(start + start // step % step, len(places) - 1)] for start in range(0, len(places), step))


def played(calls: list[Recorded]) -> Medium:
    medium = Medium()
    medium.play(calls)
    return medium


def state_after(calls: list[Recorded], count: int, seed: int, directory: Path) -> Promises:
    medium = played(calls[:count])
    medium.lose_power(Random(seed))
    medium.lay_out(directory)
    return Promises.of(medium.said)


def outcomes(calls: list[Recorded]) -> Iterator[Medium]:
    """The medium with each part of what no sync covered, if there are few; nothing if there are more."""
    changes = played(calls).unsynced_names()
    if 1 << changes > _OUTCOMES_MAX:
        return
    chosen: list[tuple[int, int]] = []
    # With all names most files are there: what is too much is soon seen.
    for names in reversed(range(1 << changes)):
        medium = played(calls)
        medium.keep_names(names)
        writes = 1 << medium.unsynced_writes()
        if len(chosen) + writes > _OUTCOMES_MAX:
            return
        chosen += [(names, kept) for kept in range(writes)]
    for names, kept in chosen:
        medium = played(calls)
        medium.keep_names(names)
        medium.keep_writes(kept)
        yield medium


def omissions(calls: list[Recorded], *, pairs: bool) -> Iterator[Medium]:
    """The medium with all that no sync covered but one operation, and but two."""
    operations = played(calls).unsynced_operations()
    left_out: list[tuple[Operation, ...]] = [(each,) for each in operations]
    if pairs:
        left_out += combinations(operations, 2)
    if len(left_out) > _OMISSIONS_MAX:
        left_out = Random(len(calls)).sample(left_out, _OMISSIONS_MAX)
    for chosen in left_out:
        medium = played(calls)
        medium.leave_out(chosen)
        yield medium


class Trial:
    """Starts the real code on one state after the other, and counts."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind = kind
        self._directory = directory
        self.counts: Counter[str] = Counter()

    def start_on(self, medium: Medium, promises: Promises, what: str, told: str) -> None:
        medium.lay_out(self._directory)
        try:
            self.counts["rebuilt"] += not asyncio.run(CHECKS[self._kind](str(self._directory), promises))
        except BaseException as error:
            error.add_note(told)
            raise
        shutil.rmtree(self._directory)
        self.counts[what] += 1


def lose_starts(kind: str, calls: list[Recorded], trial: Trial, directory: Path, strace: str) -> None:
    """The power fails again while what the first loss has left is started."""
    for seed, count in enumerate(beginnings(calls, _STARTS)):
        state = directory / f"lost-{seed}"
        promises = state_after(calls, count, seed, state)
        before = Medium.holding(state)
        again = recorded(kind, state, strace, again=True)
        for second in beginnings(again, _START_BEGINNINGS):
            medium = before.copy()
            medium.play(again[:second])
            medium.lose_power(Random(seed + second))
            told = f"power lost before call {count}, loss {seed}, and again before call {second} of the start"
            trial.start_on(medium, promises, "second losses", told)
        shutil.rmtree(state)


@pytest.mark.feature("F-BKS-34")
@pytest.mark.parametrize("kind", _KINDS)
def test_every_state_after_a_power_loss_recovers(
    kind: str, tmp_path: Path, needs: Callable[[str, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    strace = needs("strace", "apt install strace")
    calls = recorded(kind, tmp_path / "recorded", strace)
    logging.getLogger("magnetar").setLevel(logging.CRITICAL)
    trial = Trial(kind, tmp_path / "state")
    for number, count in enumerate(beginnings(calls, _BEGINNINGS)):
        told = f"the power failed before call {count}, {calls[count : count + 1]}"
        if number % _OUTCOMES_EVERY == 0:
            tried = trial.counts["chosen"]
            for medium in outcomes(calls[:count]):
                trial.start_on(medium, Promises.of(medium.said), "chosen", told)
            is_whole = trial.counts["chosen"] > tried
            trial.counts["whole beginnings"] += is_whole
            if not is_whole:
                for medium in omissions(calls[:count], pairs=number % _PAIRS_EVERY == 0):
                    trial.start_on(medium, Promises.of(medium.said), "left out", f"{told}, one or two left out")
        for seed in range(_LOSSES):
            medium = played(calls[:count])
            medium.lose_power(Random(seed))
            trial.start_on(medium, Promises.of(medium.said), "drawn", f"{told}, loss {seed}")
        trial.counts["beginnings"] += 1
    lose_starts(kind, calls, trial, tmp_path, strace)
    counts = trial.counts
    # Only RocksDB does not open everything that it may have left.
    assert kind == "bookie" or not counts["rebuilt"]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{kind}: {len(calls)} recorded calls, {counts['beginnings']} beginnings: {counts['drawn']} states drawn,"
            f" {counts['chosen']} that are all there are of {counts['whole beginnings']} beginnings,"
            f" {counts['left out']} without one operation or two, {counts['second losses']} after a second loss;"
            f" all recovered, {counts['rebuilt']} by rebuilding the index\n"
        )


def without_syncs(calls: list[Recorded], forgotten: str) -> list[Recorded]:
    """A life that forgets to sync the files of one directory."""
    syncs = (Kind.SYNC_BEGINS, Kind.SYNC_ENDS)
    depth = forgotten.count("/")
    careless = [
        call._replace(kind=Kind.WRITE) if call.kind is Kind.WRITE_DURABLY and call.path.startswith(forgotten) else call
        for call in calls
        if not (call.kind in syncs and call.path.startswith(forgotten) and call.path.count("/") == depth)
    ]
    assert careless != calls
    return careless


@pytest.mark.feature("F-BKS-34")
@pytest.mark.parametrize(
    ("kind", "forgotten"),
    [("bookie", "journal/current/"), ("bookie", "ledgers/current/"), ("metadata", "metadata/")],
)
def test_a_sync_that_is_left_out_is_found(
    kind: str, forgotten: str, tmp_path: Path, needs: Callable[[str, str], str]
) -> None:
    """The trace of syncs is what durability rests on: without those of one directory, something promised is missing."""
    careless = without_syncs(recorded(kind, tmp_path / "recorded", needs("strace", "apt install strace")), forgotten)
    logging.getLogger("magnetar").setLevel(logging.CRITICAL)
    for seed in range(30):
        directory = tmp_path / f"state-{seed}"
        # Both lives of the storage end at the same place: the clean one recovers, the careless one does not.
        count = len(careless) * (seed % 10 + 1) // 10
        promises = state_after(careless, count, seed, directory)
        try:
            asyncio.run(CHECKS[kind](str(directory), promises))
        except Exception:
            return
    raise AssertionError(f"nothing is missing without the syncs of {forgotten}")


@pytest.mark.feature("F-BKS-34")
@pytest.mark.parametrize("kind", ["bookie", "plain-bookie"])
def test_an_index_that_is_not_synced_is_rebuilt_and_denies_nothing(
    kind: str, tmp_path: Path, needs: Callable[[str, str], str]
) -> None:
    """Without its syncs nothing promised is denied, by design: what it knows is in the entry logs, too.

    It is found out by the number of the checkpoint. New places of compacted entries have none: where they are lost the
    entry is unknown, and other bookies are asked. Only a disk that lies about syncs comes to that.
    """
    calls = recorded(kind, tmp_path / "recorded", needs("strace", "apt install strace"))
    careless = without_syncs(calls, "ledgers/current/index/")
    logging.getLogger("magnetar").setLevel(logging.CRITICAL)
    trial = Trial(kind, tmp_path / "state")
    for seed in range(30):
        count = len(careless) * (seed % 10 + 1) // 10
        medium = played(careless[:count])
        medium.lose_power(Random(seed))
        try:
            trial.start_on(medium, Promises.of(medium.said), "careless", f"before call {count}, loss {seed}")
        except EntryUnknown:
            shutil.rmtree(tmp_path / "state")
    assert trial.counts["rebuilt"], "as if every sync had been there"
