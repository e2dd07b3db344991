# SPDX-License-Identifier: Apache-2.0
"""How long to wait before trying again: twice as long each time, up to a limit, less a little chance.

The first try again after a success is quick; chance keeps many clients of one dead broker from coming back together.
Decides.
"""

from random import Random
from typing import Final

JITTER: Final = 0.1
"""The share of a delay that chance may take away."""


class Backoff:
    __slots__ = ("_delay_ms", "_delay_ms_max", "_initial_ms", "_random")

    def __init__(self, initial_ms: int, delay_ms_max: int, random: Random) -> None:
        self._initial_ms = max(1, initial_ms)
        self._delay_ms_max = max(self._initial_ms, delay_ms_max)
        self._delay_ms = self._initial_ms
        self._random = random

    def next_s(self) -> float:
        """Seconds to wait now; the next answer is twice as long."""
        delay_ms = self._delay_ms
        self._delay_ms = min(2 * delay_ms, self._delay_ms_max)
        return delay_ms * (1 - JITTER * self._random.random()) / 1000

    def reset(self) -> None:
        """It worked: begin anew."""
        self._delay_ms = self._initial_ms


class RedeliveryBackoff:
    """How long a message waits before it is delivered again, by how often it was: `min_ms * multiplier ** count`."""

    __slots__ = ("max_ms", "min_ms", "multiplier")

    def __init__(self, min_ms: int = 1_000, max_ms: int = 60_000, multiplier: float = 2.0) -> None:
        if not 0 < min_ms <= max_ms or multiplier < 1:
            raise ValueError(f"a redelivery back-off needs 0 < min_ms <= max_ms, multiplier >= 1: {min_ms}, {max_ms}")
        self.min_ms = min_ms
        self.max_ms = max_ms
        self.multiplier = multiplier

    def delay_ms(self, redelivery_count: int) -> int:
        if redelivery_count <= 0:
            return self.min_ms
        try:
            return int(min(self.min_ms * self.multiplier**redelivery_count, self.max_ms))
        except OverflowError:
            return self.max_ms
