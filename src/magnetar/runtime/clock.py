# SPDX-License-Identifier: Apache-2.0
"""Wall-clock time, for what people and records see: publish time, TTL, delay. Durations come from the loop's clock.

Carries.
"""

import time
from abc import ABC, abstractmethod


class WallClock(ABC):
    @abstractmethod
    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class SystemClock(WallClock):
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
