# SPDX-License-Identifier: Apache-2.0
"""How much of a machine is used, from counters read now and then.

What was used since the last look is divided by the time since then; a look that comes too soon after the other, as
after a pause of the process, says nothing and leaves the last answer as it is.
Decides.
"""

from typing import Final

from magnetar.broker.ownership.load_data import ResourceUsage
from magnetar.runtime.host import HostReading

ELAPSED_S_MIN: Final = 0.5
_GIGABIT_BYTES: Final = 125_000_000.0


class UsageMeter:
    __slots__ = ("_last", "_last_s", "_network_bytes_per_s", "resources")

    def __init__(self, network_gbps: float = 0.0) -> None:
        self._network_bytes_per_s = network_gbps * _GIGABIT_BYTES
        self._last: HostReading | None = None
        self._last_s = 0.0
        # As RESOURCES orders them; use and limit.
        self.resources: tuple[ResourceUsage, ...] = (ResourceUsage(),) * 5

    def look(self, reading: HostReading, now_s: float) -> tuple[ResourceUsage, ...]:
        """The use of each resource since the last look."""
        last, elapsed_s = self._last, now_s - self._last_s
        if last is None:
            self._last, self._last_s = reading, now_s
            self.resources = (ResourceUsage(0.0, 100.0 * reading.processors), *self._memory(reading), *self._network())
            return self.resources
        if elapsed_s < ELAPSED_S_MIN:
            return self.resources
        self._last, self._last_s = reading, now_s
        busy_s = max(0.0, reading.busy_s - last.busy_s)
        cpu = min(100.0 * reading.processors, 100.0 * busy_s / elapsed_s)
        received = max(0, reading.received_bytes - last.received_bytes) / elapsed_s
        sent = max(0, reading.sent_bytes - last.sent_bytes) / elapsed_s
        limit = self._network_bytes_per_s
        self.resources = (
            ResourceUsage(cpu, 100.0 * reading.processors),
            *self._memory(reading),
            ResourceUsage(received, limit),
            ResourceUsage(sent, limit),
        )
        return self.resources

    def _network(self) -> tuple[ResourceUsage, ResourceUsage]:
        return ResourceUsage(0.0, self._network_bytes_per_s), ResourceUsage(0.0, self._network_bytes_per_s)

    @staticmethod
    def _memory(reading: HostReading) -> tuple[ResourceUsage, ResourceUsage]:
        """Of the process; a broker here has no direct memory beside it."""
        return ResourceUsage(reading.memory_bytes, reading.memory_limit_bytes), ResourceUsage(0.0, 0.0)
