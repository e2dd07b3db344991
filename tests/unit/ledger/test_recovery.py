# SPDX-License-Identifier: Apache-2.0
"""What answers prove about an abandoned ledger's end: the deciding rounds, by plain calls."""

import pytest

from magnetar.errors import BookieUnavailable, DigestMismatch, EntryUnknown, NoSuchEntry, NoSuchLedger
from magnetar.ledger.channel import LastConfirmed
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.recovery import CoverageRound, EntryRound, Verdict, confirmed_in
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker

ABSENT = NoSuchEntry("not here")
SILENT = BookieUnavailable("no answer")


@pytest.mark.feature("F-REC-05")
def test_recovery_starts_no_earlier_than_the_last_segment() -> None:
    fencing = CoverageRound(Quorum(3, 3, 2), first_entry=10)
    for member, last_add_confirmed in enumerate((3, 5, 4)):
        fencing.on_answered(member, last_add_confirmed)
    assert fencing.verdict is Verdict.PROVEN
    assert fencing.start == 9


def test_recovery_starts_at_the_highest_number_seen() -> None:
    fencing = CoverageRound(Quorum(3, 3, 2), first_entry=0)
    fencing.on_answered(0, 7)
    fencing.on_answered(2, 5)
    assert fencing.start == 7


def test_coverage_is_open_then_proven_or_stuck() -> None:
    fencing = CoverageRound(Quorum(3, 3, 2), first_entry=0)
    fencing.on_answered(0, -1)
    verdicts = [fencing.verdict]
    for member in (1, 2):
        fencing.on_unknown(member, SILENT)
        verdicts.append(fencing.verdict)
    assert verdicts == [Verdict.OPEN, Verdict.OPEN, Verdict.STUCK]
    assert sorted(fencing.unknown) == [1, 2]


@pytest.mark.feature("F-REC-09")
def test_ack_quorum_one_needs_every_answer() -> None:
    fencing = CoverageRound(Quorum(2, 2, 1), first_entry=0)
    fencing.on_answered(0, 4)
    before = fencing.verdict
    fencing.on_unknown(1, SILENT)
    assert (before, fencing.verdict) == (Verdict.OPEN, Verdict.STUCK)


@pytest.mark.feature("F-REC-07")
@pytest.mark.parametrize(
    ("quorum", "answers", "verdict"),
    [
        ((3, 3, 2), [ABSENT, ABSENT], Verdict.ABSENT),
        ((3, 3, 2), [ABSENT, SILENT], Verdict.OPEN),
        ((3, 3, 2), [ABSENT, SILENT, SILENT], Verdict.STUCK),
        ((3, 3, 2), [ABSENT, None], Verdict.PROVEN),
        ((3, 3, 3), [ABSENT], Verdict.ABSENT),
        ((3, 3, 3), [SILENT, SILENT, SILENT], Verdict.STUCK),
        ((2, 2, 1), [ABSENT, SILENT], Verdict.STUCK),
        ((2, 2, 1), [ABSENT, NoSuchLedger("nothing")], Verdict.ABSENT),
        # F63: unknown does not decide, only an explicit negative does.
        ((3, 3, 3), [EntryUnknown("limbo")], Verdict.OPEN),
        ((3, 3, 3), [DigestMismatch("rot"), EntryUnknown("limbo"), SILENT], Verdict.STUCK),
    ],
)
def test_only_explicit_negatives_prove_absence(
    quorum: tuple[int, int, int], answers: list[Exception | None], verdict: Verdict
) -> None:
    reading = EntryRound(Quorum(*quorum))
    for member, answer in enumerate(answers):
        if answer is None:
            reading.on_found(member)
        else:
            assert isinstance(answer, NoSuchEntry | NoSuchLedger | BookieUnavailable | EntryUnknown | DigestMismatch)
            reading.on_error(member, answer)
    assert reading.verdict is verdict


def test_only_a_number_under_a_digest_counts() -> None:
    packer = EntryPacker(7, DigestType.CRC32C, b"secret")
    entry = packer.pack(5, 3, 100, [b"body"])
    assert confirmed_in(LastConfirmed(4, entry), packer) == 3
    damaged = entry[:-1] + b"?"
    assert confirmed_in(LastConfirmed(4, damaged), packer) == -1
    assert confirmed_in(LastConfirmed(4, None), packer) == -1
