# SPDX-License-Identifier: Apache-2.0
"""How much a wake-up of a pump may send before everybody else on the loop has a turn.

A subscription that catches up always has more to send, and what a producer sends meanwhile waits for the end of such a
turn twice: on its way down, and when it has been synced. So beside little publishing, whose latency is seen, whoever
catches up takes short turns. Beside much, the disk and the publishers themselves are what one waits for, and short
turns would only hand the loop to them. Decides.
"""

from typing import Final, NamedTuple

from magnetar.broker.publish_budget import PublishBudget

# With this much on its way nobody publishes for latency.
_LITTLE_BYTES_MAX: Final = 256 * 1024
# Whoever publishes one at a time is back within this.
_RECENT_S: Final = 0.02


class Measure(NamedTuple):
    entries: int
    size_bytes: int


USUAL: Final = Measure(100, 1024 * 1024)
SHORT: Final = Measure(32, 256 * 1024)


class WakeMeasure:
    """One for a broker."""

    __slots__ = ("_publishing", "_recent_until_s")

    def __init__(self, publishing: PublishBudget) -> None:
        self._publishing = publishing
        self._recent_until_s = 0.0

    def of_one_behind(self, now_s: float) -> Measure:
        """For a subscription that had more to send than its last measure."""
        pending = self._publishing.bytes_pending
        if pending > _LITTLE_BYTES_MAX:
            self._recent_until_s = 0.0
        elif pending:
            self._recent_until_s = now_s + _RECENT_S
        return SHORT if now_s < self._recent_until_s else USUAL
