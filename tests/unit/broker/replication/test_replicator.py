# SPDX-License-Identifier: Apache-2.0
"""A replicator whose sends fail, whose link breaks and whose other cluster comes back: in order, once, nothing lost."""

import asyncio

import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.unit.broker.replication.two_clusters import TwoClusters, passed, run


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
