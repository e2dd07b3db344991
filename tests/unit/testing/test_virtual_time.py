# SPDX-License-Identifier: Apache-2.0
"""Message time in the test's hands: what is due happens, nothing happens early, and nobody waits for real."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Literal

import pytest

from magnetar import InitialPosition
from magnetar.blocking import Client as BlockingClient
from magnetar.client.backoff import RedeliveryBackoff
from magnetar.client.options import ConsumerType, DeadLetterPolicy
from magnetar.errors import BadSetting, TimedOut, TooManyRequests
from magnetar.testing import LocalPulsar, ThreadedPulsar

LoopRun = Callable[[Coroutine[Any, Any, None]], None]
Transport = Literal["tcp", "memory"]
TRANSPORTS: list[Transport] = ["tcp", "memory"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_delayed_message_comes_at_its_time_and_not_before(loop_run: LoopRun, transport: Transport) -> None:
    async def scenario() -> None:
        async with LocalPulsar(clock="manual", transport=transport) as pulsar, pulsar.client() as client:
            consumer = await client.subscribe("t", "s", consumer_type=ConsumerType.Shared)
            producer = await client.create_producer("t")
            for hours in (3, 1, 2):
                await producer.send(b"%d" % hours, deliver_after=timedelta(hours=hours))
            await pulsar.advance(minutes=59, seconds=59)
            assert consumer.queue_is_empty()
            came = []
            for _ in range(3):
                await pulsar.advance(hours=1)
                came.append((await consumer.receive(1_000)).data())
                assert consumer.queue_is_empty()
            assert came == [b"1", b"2", b"3"]

    loop_run(scenario())


@pytest.mark.feature("F-CLNT-11")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_refused_and_forgotten_messages_come_back_by_the_same_clock(loop_run: LoopRun, transport: Transport) -> None:
    """Negative acks, acknowledgement time-outs and delays all follow one clock, and none of them runs early."""

    async def scenario() -> None:
        async with LocalPulsar(clock="manual", transport=transport) as pulsar, pulsar.client() as client:
            consumer = await client.subscribe(
                "t",
                "s",
                consumer_type=ConsumerType.Shared,
                unacked_messages_timeout_ms=600_000,
                negative_ack_redelivery_backoff=RedeliveryBackoff(60_000, 3_600_000, 10),
            )
            producer = await client.create_producer("t")
            await producer.send(b"refused")
            await producer.send(b"forgotten")
            await producer.send(b"delayed", deliver_after=timedelta(minutes=15))
            refused, forgotten = await consumer.receive(1_000), await consumer.receive(1_000)
            assert (refused.data(), forgotten.data()) == (b"refused", b"forgotten")
            consumer.negative_acknowledge(refused)
            await pulsar.advance(seconds=59)
            assert consumer.queue_is_empty()
            await pulsar.advance(seconds=5)
            again = await consumer.receive(1_000)
            assert (again.data(), again.redelivery_count()) == (b"refused", 1)
            # The back-off grows: ten minutes now, and by then the forgotten one is due as well.
            consumer.negative_acknowledge(again)
            await pulsar.advance(minutes=8)
            assert consumer.queue_is_empty()
            await pulsar.advance(minutes=3)
            came = {(await consumer.receive(1_000)).data() for _ in range(2)}
            assert came == {b"refused", b"forgotten"}
            await pulsar.advance(minutes=4)
            assert (await consumer.receive(1_000)).data() == b"delayed"

    loop_run(scenario())


def test_time_alone_acknowledges_nothing_that_was_acknowledged(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        async with LocalPulsar(clock="manual", transport="memory") as pulsar, pulsar.client() as client:
            consumer = await client.subscribe(
                "t", "s", consumer_type=ConsumerType.Shared, unacked_messages_timeout_ms=10_000
            )
            producer = await client.create_producer("t")
            await producer.send(b"done")
            await consumer.acknowledge(await consumer.receive(1_000))
            await pulsar.advance(days=1)
            assert consumer.queue_is_empty()
            assert consumer.statistics().ack_timeouts == 0

    loop_run(scenario())


def test_unacknowledged_messages_expire_by_their_time_to_live(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        settings = {"ttlDurationDefaultInSeconds": "3600"}
        async with (
            LocalPulsar(settings=settings, clock="manual", transport="memory") as pulsar,
            pulsar.client() as client,
        ):
            await (await client.subscribe("t", "s")).close()
            producer = await client.create_producer("t")
            for number in range(5):
                await producer.send(b"%d" % number)
            await pulsar.advance(minutes=50)
            consumer = await client.subscribe("t", "s", consumer_type=ConsumerType.Shared)
            assert (await consumer.receive(1_000)).data() == b"0"
            await consumer.close()
            await pulsar.advance(minutes=20)
            await producer.send(b"fresh")
            consumer = await client.subscribe("t", "s", consumer_type=ConsumerType.Shared)
            assert (await consumer.receive(1_000)).data() == b"fresh"

    loop_run(scenario())


def test_what_retention_keeps_is_there_until_its_time_is_over(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        settings = {
            "defaultRetentionTimeInMinutes": "60",
            "defaultRetentionSizeInMB": "-1",
            "managedLedgerMinLedgerRolloverTimeMinutes": "0",
            "managedLedgerMaxEntriesPerLedger": "2",
            "brokerDeleteInactiveTopicsEnabled": "false",
        }
        async with (
            LocalPulsar(settings=settings, clock="manual", transport="memory") as pulsar,
            pulsar.client() as client,
        ):
            consumer = await client.subscribe("t", "s")
            producer = await client.create_producer("t")
            for number in range(6):
                await producer.send(b"%d" % number)
                await consumer.acknowledge(await consumer.receive(1_000))
            await pulsar.advance(minutes=30)
            reader = await client.create_reader("t", _earliest())
            assert (await reader.read_next(1_000)).data() == b"0"
            await reader.close()
            await pulsar.advance(hours=3)
            await producer.send(b"new")
            reader = await client.create_reader("t", _earliest())
            assert (await reader.read_next(1_000)).data() == b"new"

    loop_run(scenario())


def test_dead_letters_follow_from_time_alone(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        async with LocalPulsar(clock="manual", transport="memory") as pulsar, pulsar.client() as client:
            letters = await client.subscribe("dead", "undertaker", initial_position=InitialPosition.Earliest)
            consumer = await client.subscribe(
                "t",
                "s",
                consumer_type=ConsumerType.Shared,
                unacked_messages_timeout_ms=60_000,
                dead_letter_policy=DeadLetterPolicy(2, dead_letter_topic="dead"),
            )
            producer = await client.create_producer("t")
            await producer.send(b"hopeless")
            for _ in range(3):
                await consumer.receive(1_000)
                await pulsar.advance(minutes=2)
            assert (await letters.receive(1_000)).data() == b"hopeless"

    loop_run(scenario())


def test_automatic_time_jumps_to_what_is_due_when_nothing_else_is_to_be_done(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        async with LocalPulsar(clock="auto", transport="memory") as pulsar, pulsar.client() as client:
            consumer = await client.subscribe("t", "s", consumer_type=ConsumerType.Shared)
            producer = await client.create_producer("t")
            began_ms = pulsar.clock.now_ms()
            await producer.send(b"later", deliver_after=timedelta(days=100))
            assert pulsar.clock.now_ms() - began_ms <= 100 * 86_400_000
            message = await consumer.receive()
            assert message.data() == b"later"
            assert pulsar.clock.now_ms() - began_ms == 100 * 86_400_000
            await consumer.acknowledge(message)
            await pulsar.advance(hours=5)
            assert pulsar.clock.now_ms() - began_ms == 100 * 86_400_000 + 5 * 3_600_000

    loop_run(scenario())


def test_time_is_moved_by_one_at_a_time_and_never_back(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        import asyncio

        async with LocalPulsar(clock="manual", transport="memory") as pulsar:
            with pytest.raises(ValueError, match="does not go back"):
                await pulsar.advance(seconds=-1)
            outcomes = await asyncio.gather(pulsar.advance(hours=1), pulsar.advance(hours=1), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [type(None), TooManyRequests]

    loop_run(scenario())


def test_real_time_is_not_moved_and_automatic_time_needs_everything_in_memory(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        async with LocalPulsar() as pulsar:
            with pytest.raises(BadSetting, match="manual"):
                await pulsar.advance(hours=1)
        with pytest.raises(BadSetting, match="memory"):
            LocalPulsar(clock="auto")

    loop_run(scenario())


@pytest.mark.pulsar(clock="manual")
def test_a_blocking_client_lives_by_the_same_clock(pulsar: ThreadedPulsar) -> None:
    with pulsar.client() as client:
        consumer = client.subscribe(
            "t", "s", consumer_type=ConsumerType.Shared, negative_ack_redelivery_delay_ms=3_600_000
        )
        client.create_producer("t").send(b"again")
        consumer.negative_acknowledge(consumer.receive(1_000))
        before_ms = pulsar.now_ms()
        pulsar.advance(hours=2)
        assert pulsar.now_ms() - before_ms == 7_200_000
        assert consumer.receive(1_000).redelivery_count() == 1


@pytest.mark.pulsar(clock="manual")
def test_a_client_of_its_own_gets_delayed_messages_by_the_brokers_clock(pulsar: ThreadedPulsar) -> None:
    with BlockingClient(pulsar.service_url) as client:
        consumer = client.subscribe("t", "s", consumer_type=ConsumerType.Shared)
        client.create_producer("t").send(b"later", deliver_at=pulsar.now_ms() + 60_000)
        with pytest.raises(TimedOut):
            consumer.receive(50)
        pulsar.advance(minutes=1)
        assert consumer.receive(5_000).data() == b"later"


def _earliest() -> Any:
    from magnetar.client.message_id import MessageId

    return MessageId.earliest
