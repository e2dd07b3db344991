# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.perf --client raw`: frames built beforehand, so that the server is what is measured."""

from collections.abc import Callable

from benchmarks.perf_work import ENDLESS, Meter, Report, Work
from benchmarks.raw_connection import RawConnection, Watched, run_until
from benchmarks.raw_consume import RawConsumer
from benchmarks.raw_frames import Shape
from benchmarks.raw_paced import DRAIN_LIMIT_S, Paced, drive
from benchmarks.raw_publish import Publisher, connected

# What is built for a connection; beyond it the same frames go again.
BUILT_BYTES_MAX = 64 * 2**20
BUILT_MAX = 20_000
# Which connection an entry went over is in the upper half of its index.
_CONNECTION_BITS = 32

# A connection, the topic of each of its producers, and how many entries go over it.
Made = tuple[RawConnection, list[str], int]


def _built(work: Work, shape: Shape, producers: int) -> int:
    """Whole rounds of a connection's producers."""
    found = max(1, min(BUILT_MAX, BUILT_BYTES_MAX // (work.size * shape.batch * work.connections)))
    return -(-found // producers) * producers


def _shape(work: Work) -> Shape:
    return Shape(work.size, work.batch, keys=100 if work.kind == "Key_Shared" else 0)


def _entries(work: Work, connections: int) -> list[int]:
    entries = -(-work.wanted // work.batch)
    return [(entries + number) // connections for number in range(connections)]


def _window(work: Work, producers: int) -> int:
    return max(1, work.outstanding * producers // work.batch)


def publish(work: Work, report: Report, *, consumed: bool = False) -> None:
    """All producers, by a schedule or as fast as they get receipts; with consumers whose messages are timed, too."""
    shares = work.shares()
    connections = connected(work.service_url, shares)
    counts = _entries(work, len(shares))
    made = [each for each in zip(connections, shares, counts, strict=True) if each[2]]
    if work.rate:
        _by_schedule(work, report, made, consumed=consumed)
    else:
        _closed_loop(work, report, made)
    for connection in connections:
        connection.close()


def _closed_loop(work: Work, report: Report, made: list[Made]) -> None:
    shape = _shape(work)
    publishers = [
        Publisher("", share, count, shape, _window(work, len(share)), _built(work, shape, len(share)), connection)
        for connection, share, count in made
    ]
    sources = [each.latencies_ms for each in publishers]
    report.begin(Meter("published", work.size, sources, lambda: sum(each.received for each in publishers) * work.batch))
    watched: Watched = {each.connection: (each.receive, each.send) for each in publishers}
    run_until(lambda: report.is_over() or all(each.is_done for each in publishers), watched, ENDLESS)


def _by_schedule(work: Work, report: Report, made: list[Made], *, consumed: bool) -> None:
    shape = _shape(work)
    rate = work.rate / work.batch / len(made)
    paced = [
        Paced(
            connection,
            len(share),
            shape,
            rate=rate,
            count=count,
            built=_built(work, shape, len(share)),
            window=_window(work, len(share)),
            first=number << _CONNECTION_BITS,
        )
        for number, (connection, share, count) in enumerate(made)
    ]

    def on_entry(message: memoryview) -> None:
        paced[shape.index_of(message) >> _CONNECTION_BITS].on_entry(message)

    consumers = _consumers(work, work.batch, on_entry) if consumed else []
    sources = [each.latencies.publish_ms for each in paced]
    meters = [Meter("published", work.size, sources, lambda: sum(each.answered for each in paced) * work.batch)]
    if consumed:
        sources = [each.latencies.end_to_end_ms for each in paced]
        meters.append(Meter("end to end", work.size, sources, lambda: sum(each.messages for each in consumers)))
    report.begin(*meters)
    drive(paced, consumers, work.schedule_s + DRAIN_LIMIT_S, report.is_over)


def _consumers(work: Work, batch: int, on_entry: Callable[[memoryview], None] | None = None) -> list[RawConsumer]:
    return [
        RawConsumer(
            work.service_url,
            topic,
            work.subscription,
            kind=work.kind,
            queue=work.queue,
            batch=batch,
            earliest=work.earliest,
            on_entry=on_entry,
        )
        for topic in work.topics * work.consumers
    ]


def consume(work: Work, report: Report) -> None:
    """Each consumer on a connection of its own: what it gets is counted and acknowledged, and not looked into."""
    consumers = _consumers(work, 0)
    received = Meter("received", messages=lambda: sum(each.messages for each in consumers))
    report.begin(received)
    for consumer in consumers:
        consumer.start()
    watched: Watched = {consumer.connection: (consumer.receive, None) for consumer in consumers}
    run_until(lambda: report.is_over() or received.messages >= work.wanted, watched, ENDLESS)
    for consumer in consumers:
        consumer.connection.socket.setblocking(True)
        consumer.acknowledge()
        consumer.connection.close()
