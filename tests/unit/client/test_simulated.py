# SPDX-License-Identifier: Apache-2.0
"""The client inside the simulation: a seeded loop, virtual time, a network that delays, splits and breaks."""

import asyncio

import pytest

from magnetar import Client
from magnetar.client.options import CompressionType
from magnetar.runtime.chance import stream
from tests.simulation.world.world import Verdict, World
from tests.unit.client.fake_broker import FakeBroker

TOPIC = "persistent://public/default/simulated"
MESSAGES = 120


def simulate(seed: int) -> Verdict:
    world = World(seed)

    async def scenario(world: World) -> None:
        chance = stream(seed, "cuts")
        async with FakeBroker() as broker:
            client = Client(
                broker.url,
                random=stream(seed, "client"),
                operation_timeout_seconds=120,
                keep_alive_interval_seconds=chance.choice([0.5, 30]),
            )
            batching = chance.random() < 0.5
            compression = chance.choice(list(CompressionType))
            cutting = True

            async def cut() -> None:
                while cutting:
                    await asyncio.sleep(chance.random() * 2)
                    broker.cut_all()

            async def publish() -> None:
                producer = await client.create_producer(
                    TOPIC,
                    send_timeout_millis=0,
                    batching_enabled=batching,
                    batching_max_messages=chance.randint(2, 20),
                    compression_type=compression,
                    max_pending_messages=chance.randint(3, 50),
                    block_if_queue_full=True,
                )
                receipts = []
                for number in range(MESSAGES):
                    receipts.append(await producer.submit(str(number).encode()))
                    await asyncio.sleep(chance.random() * 0.1)
                for receipt in receipts:
                    await receipt

            async def consume() -> list[bytes]:
                consumer = await client.subscribe(TOPIC, "s", receiver_queue_size=chance.randint(1, 40))
                seen: dict[bytes, None] = {}
                while len(seen) < MESSAGES:
                    message = await consumer.receive()
                    seen[message.data()] = None
                    await consumer.acknowledge(message)
                return list(seen)

            async with asyncio.TaskGroup() as group:
                group.create_task(cut())
                publishing, consuming = group.create_task(publish()), group.create_task(consume())
                await publishing
                cutting = False
                await consuming
            assert consuming.result() == [str(number).encode() for number in range(MESSAGES)]
            await client.close()

    return world.run("client", scenario)


@pytest.mark.parametrize("seed", range(12))
def test_everything_arrives_in_order_in_any_weather(seed: int) -> None:
    verdict = simulate(seed)
    assert not verdict.violations, f"seed {seed}: {verdict.violations}"


def test_a_seed_repeats_itself() -> None:
    assert simulate(5).trace == simulate(5).trace
