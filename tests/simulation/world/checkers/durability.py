# SPDX-License-Identifier: Apache-2.0
"""R1 as a white-box check: when someone is told "it is durable", the disk's model must agree at that moment.

A scenario calls `acknowledged` where an acknowledgement leaves a node; the disk is asked, not the code under test.
"""

from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.simulation.world.checkers.violation import Violation

_KEPT_MAX = 100


class DurableAcks:
    def __init__(self) -> None:
        self.checked = 0
        self.violations: list[Violation] = []

    def acknowledged(self, node: str, disk: SimulatedDisk, path: str, start: int, end: int) -> None:
        self.checked += 1
        if not disk.kernel.is_durable(path, start, end):
            self.violated(f"{node} acknowledged bytes {start} to {end} of {path}, which no sync has covered")

    def violated(self, sentence: str) -> None:
        if len(self.violations) < _KEPT_MAX:
            self.violations.append(Violation("R1 durable before acknowledged", sentence))
