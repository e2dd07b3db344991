# SPDX-License-Identifier: Apache-2.0
"""A backlog that memory cannot tell is counted, and the count is that of someone who looks at every message."""

import asyncio
from random import Random

import pytest

from magnetar.admin.backlog import backlog_messages
from magnetar.broker.subscription import Subscription
from magnetar.ids import EARLIEST, Position
from tests.unit.broker.publishers import Brokers, Client, body_of, producer_of

COUNTED_MAX = 1_000


def by_hand(subscription: Subscription, sizes: dict[Position, int]) -> int:
    state = subscription.cursor.state
    left = {
        position: state.batch_bits(position).bit_count() or size
        for position, size in sizes.items()
        if not state.is_acked(position)
    }
    return sum(left.values())


@pytest.mark.feature("F-RET-10")
@pytest.mark.parametrize("seed", range(6))
def test_a_count_is_exact_with_parts_of_batches_wherever_they_are(seed: int) -> None:
    """Found by a simulated broker: parts of a batch were forgotten where no whole entry was acknowledged."""
    random = Random(seed)

    async def main() -> None:
        brokers = Brokers(ledger_entries_max=5)
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        sizes = [random.randint(1, 6) for _ in range(14)]
        for number, size in enumerate(sizes):
            body = body_of(producer.name, number, num_messages_in_batch=size)
            topic.publish(producer, number, 0, size, body, is_chunk=False)
        await client.until_answers(len(sizes))
        entries = await topic.managed_ledger.read(EARLIEST, entries_max=100, bytes_max=1 << 20)
        of_entry = {entry.position: size for entry, size in zip(entries, sizes, strict=True)}
        for position, size in of_entry.items():
            chance = random.random()
            if chance < 0.4 and size > 1:
                subscription.cursor.ack(position, [(1 << size) - 1 & ~(1 << random.randrange(size))])
            elif chance < 0.55 and seed % 2:
                subscription.cursor.ack(position)
            tally = subscription.cursor.state.tally
            assert tally is not None
            tally.forget()
            assert await backlog_messages(subscription, COUNTED_MAX) == by_hand(subscription, of_entry)
            assert subscription.backlog_messages() == by_hand(subscription, of_entry), "and is known from then on"
        await brokers.stop()

    asyncio.run(main())
