# SPDX-License-Identifier: Apache-2.0
"""A replicator whose sends fail, whose link breaks and whose other cluster comes back: in order, once, nothing lost."""

import asyncio
from collections import Counter

import pytest

from magnetar.config.broker import BrokerSettings
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.unit.broker.replication.two_clusters import TwoClusters, passed
from tests.unit.broker.virtual_time import run


class Damage:
    """Breaks the checksum of one SEND on its way, once, and keeps the sequence ids of all that arrived before."""

    def __init__(self, number: int) -> None:
        self.seen = 0
        self.number = number

    def __call__(self, command: pb.BaseCommand, body: bytes) -> tuple[bytes, bytes]:
        if command.type == pb.BaseCommand.SEND:
            self.seen += 1
            if self.seen == self.number:
                body = body[:-1] + b"?"
        return passed(command, body)


@pytest.mark.feature("F-GEO-09")
@pytest.mark.parametrize("number", [1, 100, 101])
def test_a_send_that_fails_among_several_reads_is_stored_before_what_came_behind_it(number: int) -> None:
    """F170: three reads are on their way; what was sent behind the one that failed is not taken for its proof."""

    async def scenario() -> None:
        async with TwoClusters() as clusters:
            clusters.link.cut()
            await clusters.publish(range(250))
            damage = clusters.link.on_request = Damage(number)
            clusters.link.is_up = True
            await clusters.until_drained()
            assert damage.seen > 250, "everything behind it was on its way"
            assert await clusters.arrived() == [("p", number) for number in range(250)]

    run(scenario())


@pytest.mark.feature("F-GEO-09")
def test_one_that_is_refused_for_now_is_stored_later_and_kept_until_then() -> None:
    """F171: the second of three may be delivered too late; the connection stays, the others are on their way."""

    async def scenario() -> None:
        async with TwoClusters(delayedDeliveryMaxDelayInMillis="60000") as clusters:
            clusters.link.cut()
            await clusters.publish(range(3))
            until_ms = clusters.brokers.world.clock.now_ms() + 120_000
            await clusters.publish(range(3, 4), deliver_at_time=until_ms)
            await clusters.publish(range(4, 6))
            clusters.link.is_up = True
            await clusters.until(lambda: clusters.replicator.backlog_entries == 3)
            await asyncio.sleep(30)
            assert clusters.replicator.backlog_entries == 3, "only what is stored over there is let go here"
            assert "NotSupported" in clusters.replicator.trouble
            await clusters.until_drained()
            assert await clusters.arrived() == [("p", number) for number in range(6)]

    run(scenario())


@pytest.mark.feature("F-GEO-09")
@pytest.mark.parametrize(
    "hours", [(0, 0), (7, 0), (0, 7)], ids=["at once", "away, then unloaded", "unloaded, then away"]
)
def test_what_was_stored_without_a_receipt_is_known_when_it_comes_again(hours: tuple[int, int]) -> None:
    """F172: the other cluster unloads the topic meanwhile, and has forgotten others that were away for so long."""

    async def scenario() -> None:
        async with TwoClusters() as clusters:
            clusters.link.on_answer = lost_receipts
            await clusters.publish(range(20), "p")
            await clusters.publish(range(5), "q")
            sent = [*(("p", number) for number in range(20)), *(("q", number) for number in range(5))]
            while await clusters.arrived() != sent:  # noqa: ASYNC110  virtual time costs nothing
                await asyncio.sleep(0.01)
            clusters.link.cut()
            await clusters.die_here()
            await asyncio.sleep(3600 * hours[0])
            await clusters.there.restart()
            await clusters.arrived()
            await asyncio.sleep(3600 * hours[1])
            clusters.link.is_up, clusters.link.on_answer = True, passed
            await clusters.start()
            await clusters.until_drained()
            assert await clusters.arrived() == sent

    run(scenario())


def lost_receipts(command: pb.BaseCommand, body: bytes) -> tuple[bytes, bytes] | None:
    return None if command.type == pb.BaseCommand.SEND_RECEIPT else passed(command, body)


@pytest.mark.feature("F-GEO-08", "F-GEO-13")
def test_an_hour_without_a_link_costs_backlog_and_nothing_else() -> None:
    """F175: it drains by itself, in order, no faster than it may, with a bounded part of it on its way."""

    async def scenario() -> None:
        settings = BrokerSettings(
            cluster_name="here", replication_queue_entries=50, replicator_dispatch_messages_per_s=200
        )
        async with TwoClusters(settings) as clusters:
            clusters.link.cut()
            await clusters.publish(range(3_000))
            await asyncio.sleep(3_600)
            watch = clusters.link.on_request = Watch(clusters)
            clusters.link.is_up = True
            await clusters.until(lambda: clusters.replicator.backlog_entries < 1_500)
            # A burst on top of what waits; and the link breaks once more.
            await clusters.publish(range(3_000, 4_000))
            clusters.link.cut()
            clusters.link.is_up = True
            await clusters.until_drained()
            assert await clusters.arrived() == [("p", number) for number in range(4_000)]
            assert watch.entries_max <= 50
            assert watch.most_per_second() <= 2 * 200 + 50

    run(scenario())


class Watch:
    """Notes when each SEND arrived, and how much was on its way then."""

    def __init__(self, clusters: TwoClusters) -> None:
        self.entries_max = 0
        self._clusters = clusters
        self._seconds: Counter[int] = Counter()

    def __call__(self, command: pb.BaseCommand, body: bytes) -> tuple[bytes, bytes]:
        if command.type == pb.BaseCommand.SEND:
            self.entries_max = max(self.entries_max, len(self._clusters.replicator._in_flight))
            self._seconds[int(asyncio.get_running_loop().time())] += 1
        return passed(command, body)

    def most_per_second(self) -> int:
        return max(self._seconds.values())
