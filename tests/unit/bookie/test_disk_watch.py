# SPDX-License-Identifier: Apache-2.0
"""Read-only above the high mark, writable below the low one, no flapping between."""

import pytest

from magnetar.bookie.disk_watch import DiskWatch, used_share
from magnetar.runtime.disk import DiskUsage


def usage(share: float) -> DiskUsage:
    return DiskUsage(1000, round(1000 * (1 - share)))


@pytest.mark.feature("F-BKS-30")
def test_the_marks() -> None:
    watch = DiskWatch(usage_max=0.95, usage_low=0.9)
    seen = [watch.on_usage([usage(0.1), usage(share)]) for share in (0.5, 0.94, 0.95, 0.92, 0.97, 0.91, 0.89, 0.94)]
    assert seen == [False, False, True, True, True, True, False, False]


def test_every_disk_counts() -> None:
    watch = DiskWatch(usage_max=0.95, usage_low=0.9)
    assert watch.on_usage([usage(0.96), usage(0.1)])
    assert watch.on_usage([usage(0.1), usage(0.93)])
    assert not watch.on_usage([usage(0.1), usage(0.1)])


def test_a_low_mark_above_the_high_one_is_the_high_one() -> None:
    watch = DiskWatch(usage_max=0.5, usage_low=0.9)
    assert watch.on_usage([usage(0.5)])
    assert not watch.on_usage([usage(0.4)])
    assert used_share(DiskUsage(0, 0)) == 1.0
