# SPDX-License-Identifier: Apache-2.0
"""When a full collection is due."""

from magnetar.config.runtime import RuntimeSettings
from magnetar.runtime.collection_policy import CollectionPolicy

SETTINGS = RuntimeSettings(collect_idle_ms=1_000, collect_interval_ms=60_000, collect_growth_bytes=100)
IDLE, BUSY = 0.0, 0.5


def test_an_idle_process_collects_once_per_interval() -> None:
    policy = CollectionPolicy(SETTINGS, 0.0, 1_000)
    assert not policy.is_due(59.0, IDLE, 1_000)
    assert policy.is_due(60.0, IDLE, 1_000)
    policy.on_collected(60.0, 1_000)
    assert not policy.is_due(61.0, IDLE, 1_000)
    assert not policy.is_due(119.0, IDLE, 1_000)
    assert policy.is_due(120.0, IDLE, 1_000)


def test_a_busy_process_waits_until_it_has_been_idle_long_enough() -> None:
    policy = CollectionPolicy(SETTINGS, 0.0, 1_000)
    assert not policy.is_due(100.0, BUSY, 1_000)
    assert not policy.is_due(101.0, IDLE, 1_000)
    assert not policy.is_due(101.9, IDLE, 1_000)
    assert not policy.is_due(101.95, BUSY, 1_000)
    assert not policy.is_due(102.0, IDLE, 1_000)
    assert policy.is_due(103.0, IDLE, 1_000)


def test_growth_makes_it_due_at_once_and_the_mark_moves_with_what_is_left() -> None:
    policy = CollectionPolicy(SETTINGS, 0.0, 1_000)
    assert not policy.is_due(1.0, BUSY, 1_099)
    assert policy.is_due(1.0, BUSY, 1_100)
    policy.on_collected(1.0, 1_090)
    assert not policy.is_due(2.0, BUSY, 1_189)
    assert policy.is_due(2.0, BUSY, 1_190)
