# SPDX-License-Identifier: Apache-2.0
"""How much a task read: the counter that shows whether a filter was pushed down, and what was left out.

A task's counts go to its worker's log when its range is read; `totals` are those of this process.
Decides.
"""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class ReadCounts:
    entries: int = 0
    bytes: int = 0
    # Messages of the range; `rows` of them went to Spark.
    messages: int = 0
    rows: int = 0
    # Messages that are not there any more and were passed over, as failOnDataLoss=false says.
    skipped: int = 0
    # Messages that could not be read, as badRows=drop says.
    dropped: int = 0

    def add(self, other: "ReadCounts") -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def __str__(self) -> str:
        return ", ".join(f"{getattr(self, one.name)} {one.name}" for one in fields(self))


totals = ReadCounts()
