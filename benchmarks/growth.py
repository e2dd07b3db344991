# SPDX-License-Identifier: Apache-2.0
"""What one more costs: of topics, subscriptions, consumers, connections, ack holes and ledgers.

Each is made twice as often as the first half; the slope is that of the second half, and the two halves are compared:
nothing may grow faster than its number. Memory is PSS, so what a server gives back only later counts.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks import topics
from benchmarks.figures import Figure, Scale
from benchmarks.raw_connection import RawConnection, run_until
from benchmarks.raw_consume import RawConsumer
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import publish
from benchmarks.servers import Peer, Server, busy_percent, cpu_s, pss_mb, until_settled
from magnetar.wire import hot
from magnetar.wire.proto import pulsar_api_pb2 as pb

Make = Callable[[int], None]
MEMORY_TOLD_MB = 1.0
"""What a server's memory moves by itself within seconds: a half that weighs less tells nothing of another."""


@contextmanager
def of_topics(server: Server, total: int) -> Iterator[Make]:
    """Loaded topics with a producer each."""
    connection = RawConnection(server.service_url)
    yield lambda number: connection.produce_on(topics.fresh("growth"), number)
    connection.close()


@contextmanager
def of_subscriptions(server: Server, total: int) -> Iterator[Make]:
    """Durable subscriptions without a consumer, on one topic."""
    topic = topics.fresh("growth")
    admin = topics.Admin(server.web_url)
    admin.call("PUT", topics.path_of(topic))
    yield lambda number: (admin.call("PUT", f"{topics.path_of(topic)}/subscription/sub-{number}"), None)[1]
    admin.close()


@contextmanager
def of_consumers(server: Server, total: int) -> Iterator[Make]:
    """Consumers of one Shared subscription, on one connection."""
    connection = RawConnection(server.service_url)
    topic = topics.fresh("growth")
    kind = pb.CommandSubscribe.Shared
    yield lambda number: connection.subscribe(topic, "all", number, kind=kind, name=f"consumer-{number}")
    connection.close()


@contextmanager
def of_connections(server: Server, total: int) -> Iterator[Make]:
    made: list[RawConnection] = []
    yield lambda _: made.append(RawConnection(server.service_url))
    for connection in made:
        connection.close()


@contextmanager
def of_ledgers(server: Server, total: int) -> Iterator[Make]:
    """Ledgers of one topic: each unload closes one, each publish afterwards begins the next."""
    topic = topics.fresh("growth")
    admin = topics.Admin(server.web_url)
    admin.call("PUT", topics.path_of(topic))
    admin.call("PUT", f"{topics.path_of(topic)}/subscription/keeps")

    def one_more(_: int) -> None:
        publish(server.service_url, Shape(100), count=1, connections=1, topics=[topic])
        admin.call("PUT", f"{topics.path_of(topic)}/unload")

    yield one_more
    admin.close()


@contextmanager
def of_ack_holes(server: Server, total: int) -> Iterator[Make]:
    """Every second message of a Shared subscription is acknowledged: each leaves a hole behind it."""
    topic = topics.fresh("growth")
    with closing(topics.Admin(server.web_url)) as admin:
        # Else nothing is sent beyond 50,000 that are not acknowledged.
        for limited in ("Consumer", "Subscription"):
            admin.call("POST", f"namespaces/public/default/maxUnackedMessagesPer{limited}", 0)
    ids: list[pb.MessageIdData] = []

    def keep(message: memoryview) -> None:
        size = int.from_bytes(message[4:8], "big")
        ids.append(pb.BaseCommand.FromString(bytes(message[8 : 8 + size])).message.message_id)

    consumer = RawConsumer(
        server.service_url, topic, "holes", kind="Shared", queue=1_000_000, acks=False, on_entry=keep
    )
    consumer.start()
    publish(server.service_url, Shape(100), count=2 * total + 2, topics=[topic])
    run_until(lambda: len(ids) >= 2 * total, {consumer.connection: (consumer.receive, None)})

    def one_more(number: int) -> None:
        found = ids[number * 2 + 1]
        consumer.connection.write(hot.encode_ack(0, [(found.ledgerId, found.entryId)]))

    yield one_more
    consumer.connection.close()


KINDS = (
    ("topic", of_topics, (100, 2_000, 5_000), "≤ 20 KB"),
    ("subscription", of_subscriptions, (100, 1_000, 5_000), ""),
    ("consumer", of_consumers, (50, 2_000, 5_000), ""),
    ("connection", of_connections, (50, 1_000, 2_000), ""),
    ("ack hole", of_ack_holes, (1_000, 100_000, 500_000), ""),
    ("ledger", of_ledgers, (10, 300, 500), ""),
)


def slopes(peer: Peer, directory: Path, scale: Scale) -> list[Figure]:
    """Each kind on a fresh server, so that none takes memory that another one left."""
    found: list[Figure] = []
    for name, make_in, sizes, aim in KINDS:
        half = scale.of(*sizes)
        with peer.server(directory / name.replace(" ", "-")) as server, make_in(server, 2 * half + half // 5) as make:
            found += _slopes_of(server, make, name, half, aim, scale)
    return found


def _slopes_of(server: Server, make: Make, name: str, half: int, aim: str, scale: Scale) -> list[Figure]:
    """A few are made first, so that what the first one loads is not counted."""
    for number in range(at := half // 5):
        make(number)
    # Some seconds after its first write a server prepares for more, which weighs tens of megabytes.
    publish(server.service_url, Shape(1024), count=100, topics=[topics.fresh("growth")])
    time.sleep(scale.of(1, 5, 5))
    until_settled(server.pid)
    memory, cpu = [pss_mb(server.pid)], [cpu_s(server.pid)]
    for _ in range(2):
        for number in range(at, at + half):
            make(number)
        at += half
        time.sleep(0.3)
        memory.append(pss_mb(server.pid))
        cpu.append(cpu_s(server.pid))
    until_settled(server.pid)
    time.sleep(scale.of(1, 5, 10))  # what making them leaves behind is collected once: not idleness
    # A checkpoint a minute of 70 ms is 3 % of so short a while as three seconds.
    idle = busy_percent(server.pid, idle_s := scale.of(1, 10, 60))
    settings = f"the second {half:,} of {at:,}"
    # A server that gives memory back meanwhile hides what they weigh, and no aim is reached by that.
    weight = max(0.0, memory[2] - memory[1]) * 1024 / half
    told = settings if weight else f"{settings}; ours is less than can be told"
    halves = f"{half:,} after {half:,}, behind {half // 5:,}"
    second, first = cpu[2] - cpu[1], cpu[1] - cpu[0]
    what = f"of the second half against the first, {name}s"
    return [
        Figure(f"memory of one more {name}", weight, "KB", "less", aim if weight else "", told),
        Figure(f"  CPU to make one more {name}", second * 1e6 / half, "µs", "less", "", settings),
        Figure(f"  CPU {what}", second / first, "times", "less", "≤ 1.5", halves),
        *memory_of_halves(f"  memory {what}", memory, halves),
        Figure(f"  idle CPU with {at:,} {name}s", idle, "% of a core", "less", "1 %", f"over {idle_s} s"),
    ]


def memory_of_halves(name: str, memory_mb: list[float], settings: str) -> list[Figure]:
    """Nothing where it cannot be told: a server gave memory back in one half, or the first one weighs too little."""
    before, between, after = memory_mb
    first, second = between - before, after - between
    if first < MEMORY_TOLD_MB or second <= 0:
        return []
    return [Figure(name, second / first, "times", "less", "≤ 1.5", f"{settings}; {second:.1f} MB after {first:.1f}")]


def many_subscriptions(server: Server, scale: Scale) -> list[Figure]:
    """A topic with very many subscriptions: made over REST, then published to."""
    count = scale.of(200, 10_000, 10_000)
    topic = topics.fresh("subscribed")
    admin = topics.Admin(server.web_url)
    admin.call("PUT", topics.path_of(topic))
    memory, began = 0.0, time.perf_counter()
    for number in range(count):
        if number == count // 2:
            # The first half takes what the server had let go of.
            memory = pss_mb(server.pid)
        admin.call("PUT", f"{topics.path_of(topic)}/subscription/sub-{number}")
    made_s = time.perf_counter() - began
    admin.close()
    # A server that gives memory back meanwhile hides what they weigh: then it cannot be told from nothing.
    weight = max(0.0, pss_mb(server.pid) - memory) * 1024 / (count - count // 2)
    messages = scale.of(4_000, 200_000, 200_000)
    rate = publish(server.service_url, Shape(1024), count=messages, topics=[topic]).rate
    settings = "durable, without consumers, one topic"
    return [
        Figure(f"create {count:,} subscriptions over REST", made_s, "s", "less", "", settings),
        Figure(f"memory of each of {count:,} subscriptions", weight, "KB", "less", "", settings),
        Figure(f"publish unbatched 1 KiB with {count:,} subscriptions", rate, "msg/s", "more", "", settings),
    ]
