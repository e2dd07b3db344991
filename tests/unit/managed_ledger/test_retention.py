# SPDX-License-Identifier: Apache-2.0
"""What may be trimmed, and when a ledger is rolled: the decisions alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.config.load import load_settings
from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.errors import BadSetting
from magnetar.ids import Position
from magnetar.managed_ledger.ledger_list import LedgerSpan
from magnetar.managed_ledger.retention import consumed_ledgers, trimmable_ledgers
from magnetar.managed_ledger.rollover import Rollover, decide_rollover

MEGABYTE = 1024 * 1024


def log() -> list[LedgerSpan]:
    """Four closed ledgers of 10 entries and 100 bytes, closed at 100, 200, 300, 400 ms; then an open one."""
    spans = [LedgerSpan(i, entries=10, size_bytes=100, closed_ms=100 * i) for i in range(1, 5)]
    return [*spans, LedgerSpan(5, entries=3, size_bytes=30)]


def trimmable(slowest: Position | None, *, now_ms: int = 10_000, time_ms: int = 0, size_bytes: int = 0) -> int:
    return trimmable_ledgers(log(), slowest, now_ms=now_ms, retention_ms=time_ms, retention_bytes=size_bytes)


@pytest.mark.feature("F-RET-01", "F-ML-10", "F-RET-06")
def test_only_closed_ledgers_behind_every_cursor_may_go() -> None:
    assert trimmable(None) == 4
    assert trimmable(Position(5, 2)) == 4
    assert trimmable(Position(3, -1)) == 2
    assert trimmable(Position(3, 8)) == 2
    assert trimmable(Position(3, 9)) == 3
    assert trimmable(Position(1, 8)) == 0
    open_in_the_middle = log()
    open_in_the_middle[1].closed_ms = 0
    assert consumed_ledgers(open_in_the_middle, None) == 1


@pytest.mark.feature("F-RET-02", "F-RET-03", "F-RET-04")
def test_retention_keeps_by_time_and_by_size() -> None:
    assert trimmable(None, time_ms=-1, size_bytes=-1) == 0
    assert trimmable(None, now_ms=349, time_ms=150, size_bytes=-1) == 1
    assert trimmable(None, now_ms=350, time_ms=150, size_bytes=-1) == 2
    assert trimmable(None, time_ms=-1, size_bytes=230) == 2
    assert trimmable(None, time_ms=-1, size_bytes=231) == 1
    assert trimmable(None, time_ms=-1, size_bytes=0) == 4
    assert trimmable(Position(2, 9), time_ms=-1, size_bytes=1) == 2
    assert trimmable(Position(1, 5), now_ms=10**9, time_ms=1, size_bytes=1) == 0


@settings(max_examples=300, deadline=None)
@given(
    st.builds(Position, st.integers(0, 6), st.integers(-1, 10)),
    st.integers(0, 1000),
    st.integers(-1, 500),
    st.integers(-1, 500),
)
def test_nothing_unconsumed_and_never_the_last_ledger(
    slowest: Position, now_ms: int, time_ms: int, size_bytes: int
) -> None:
    count = trimmable(slowest, now_ms=now_ms, time_ms=time_ms, size_bytes=size_bytes)
    spans = log()
    assert count < len(spans)
    for span in spans[:count]:
        assert Position(span.ledger_id, span.entries - 1) <= slowest
    if count and size_bytes < 0:
        assert all(now_ms - span.closed_ms >= time_ms for span in spans[:count])


LIMITS = ManagedLedgerSettings(
    ledger_entries_max=10, ledger_bytes_max=1000, rollover_age_min_ms=100, rollover_age_max_ms=1000, rollover_idle_ms=0
)


@pytest.mark.feature("F-ML-06", "F-ML-07")
@pytest.mark.parametrize(
    ("entries", "size_bytes", "age_ms", "expected"),
    [
        (0, 0, 5000, Rollover.STAY),
        (5, 10, 50, Rollover.STAY),
        (10, 10, 50, Rollover.STAY),
        (10, 10, 100, Rollover.ROLL),
        (5, 1000, 99, Rollover.STAY),
        (5, 1000, 100, Rollover.ROLL),
        (5, 10, 999, Rollover.STAY),
        (5, 10, 1000, Rollover.ROLL),
    ],
)
def test_a_ledger_is_rolled_when_full_and_old_enough_or_too_old(
    entries: int, size_bytes: int, age_ms: int, expected: Rollover
) -> None:
    assert decide_rollover(LIMITS, entries=entries, size_bytes=size_bytes, age_ms=age_ms, idle_ms=0) is expected


@pytest.mark.feature("D-01")
def test_the_size_that_fills_a_ledger_is_pulsars_unless_another_is_asked_for() -> None:
    assert ManagedLedgerSettings().ledger_bytes_max == 2048 * MEGABYTE
    asked = load_settings(environ={"PULSAR_PREFIX_managedLedgerMaxSizePerLedgerMbytes": "100"}).managed_ledger
    old_ms = asked.rollover_age_min_ms
    for size_bytes, expected in ((100 * MEGABYTE - 1, Rollover.STAY), (100 * MEGABYTE, Rollover.ROLL)):
        assert decide_rollover(asked, entries=1, size_bytes=size_bytes, age_ms=old_ms, idle_ms=0) is expected


@pytest.mark.feature("D-02")
@given(entries=st.integers(1, 100), size_bytes=st.integers(1, 10_000), age_ms=st.integers(0, 5_000))
def test_no_ledger_is_rolled_before_its_time(entries: int, size_bytes: int, age_ms: int) -> None:
    """Pulsar's rule: the least time holds for a full ledger and for an old one; the longest cannot be less."""
    rolls = decide_rollover(LIMITS, entries=entries, size_bytes=size_bytes, age_ms=age_ms, idle_ms=0) is Rollover.ROLL
    has_reason = entries >= 10 or size_bytes >= 1000 or age_ms >= 1000
    assert rolls == (has_reason and age_ms >= 100)


@pytest.mark.feature("D-02")
def test_a_longest_time_that_is_shorter_than_the_least_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"rollover_age_min_ms|managedLedgerM..LedgerRolloverTimeMinutes"):
        load_settings(
            environ={
                "PULSAR_PREFIX_managedLedgerMinLedgerRolloverTimeMinutes": "10",
                "PULSAR_PREFIX_managedLedgerMaxLedgerRolloverTimeMinutes": "5",
            }
        )


@pytest.mark.feature("F-ML-08")
def test_an_idle_ledger_is_closed_without_a_successor() -> None:
    assert decide_rollover(LIMITS, entries=1, size_bytes=1, age_ms=1000, idle_ms=1000) is Rollover.CLOSE
    idle = ManagedLedgerSettings(rollover_idle_ms=50, rollover_age_max_ms=0)
    assert decide_rollover(idle, entries=1, size_bytes=1, age_ms=60, idle_ms=50) is Rollover.CLOSE
    assert decide_rollover(idle, entries=1, size_bytes=1, age_ms=60, idle_ms=49) is Rollover.STAY
    assert decide_rollover(idle, entries=0, size_bytes=0, age_ms=60, idle_ms=60) is Rollover.STAY
