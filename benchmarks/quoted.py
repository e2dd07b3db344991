# SPDX-License-Identifier: Apache-2.0
"""Numbers that are quoted of Pulsar, each beside what was measured here: to report against, not to reach."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from benchmarks.figures import shown

Row = dict[str, Any]


class Quoted(NamedTuple):
    """What is said elsewhere, of machines that are not ours, and the row that comes nearest to it."""

    what: str
    words: str
    row: str


QUOTED: Final = (
    Quoted("messages a second to a cluster", "> 100,000 msg/s", "publish unbatched 1 KiB, raw frames"),
    Quoted("messages a second of a sending thread, batched", "about 20,000 msg/s", "producer, as it comes (batched)"),
    Quoted(
        "throughput, 1 partition",
        "700 MB/s without a journal, 580 with one (Kafka: 280)",
        "publish to 1 partition",
    ),
    Quoted(
        "throughput, 100 partitions",
        "1,600 MB/s without a journal, 800 with one (Kafka: 1,087)",
        "publish to 100 partitions",
    ),
    Quoted("publish, p99", "1.58 and 7.89 ms", "publish latency at 10,000/s, p99"),
    Quoted("publish, p99.99", "1.96 and 18.82 ms", "publish latency at 10,000/s, p99.99"),
)
_HEAD: Final = """#### Quoted, and ours

Numbers that go round about Pulsar, of clusters of other machines; ours are rows above, of this one machine, where every
receipt comes after a journal's sync (`journalWriteData=false` is accepted and without effect). They say where orders of
magnitude lie."""


def table(rows: Iterable[Row]) -> list[str]:
    """The lines of it, from measured rows; none where none of them was measured."""
    measured = {row["name"]: shown(row["number"], row["unit"]) for row in rows}
    if not any(each.row in measured for each in QUOTED):
        return []
    lines = ["", *_HEAD.splitlines(), "", "| what | quoted | ours | row |", "| --- | --- | --- | --- |"]
    return lines + [f"| {each.what} | {each.words} | {measured.get(each.row, '–')} | {each.row} |" for each in QUOTED]
