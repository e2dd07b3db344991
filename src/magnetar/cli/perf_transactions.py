# SPDX-License-Identifier: Apache-2.0
"""The work of `magnetar perf transaction`: messages are received, others sent, and both become so in one transaction.

What is counted are transactions: their number, the bytes they sent, and how long each took from when it was due.
Carries.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from magnetar.cli.pace import Pace
from magnetar.cli.values import WrongUse
from magnetar.client.options import ConsumerType, InitialPosition
from magnetar.errors import MagnetarError
from magnetar.runtime.chance import fresh_seed, stream

if TYPE_CHECKING:
    from magnetar.cli.perf_work import LoadTest

# As pulsar-perf's messages have it.
_PAYLOAD_BYTES = 1024


async def transactors(test: "LoadTest", _topics: list[str]) -> list[Coroutine[Any, Any, None]]:
    """As many at once as there are threads of pulsar-perf; each has consumers and producers of its own."""
    given = test.given
    if given["num_test_threads"] < 1:
        raise WrongUse("--num-test-threads should be at least 1")
    rate = given["txnRate"] / given["num_test_threads"]
    start_s = test.loop.time()
    return [await _transactor(test, Pace(rate, start_s)) for _ in range(given["num_test_threads"])]


async def _transactor(test: "LoadTest", pace: Pace) -> Coroutine[Any, Any, None]:
    given, client = test.given, test.client
    names = given["subscriptions"]
    if len(names) == 1 and given["num_subscriptions"] > 1:
        names = [f"{names[0]}-{number}" for number in range(given["num_subscriptions"])]
    consumers = [
        await client.subscribe(
            topic,
            name,
            consumer_type=ConsumerType[given["subscription_type"].replace("_", "")],
            initial_position=InitialPosition[given["subscription_position"]],
            receiver_queue_size=given["receiver_queue_size"],
            replicate_subscription_state_enabled=given["replicated"],
        )
        for topic in given["topics_c"]
        for name in names
    ]
    producers = [
        await client.create_producer(topic, block_if_queue_full=True, send_timeout_millis=0)
        for topic in given["topics_p"]
    ]
    return _transact(test, pace, consumers, producers)


async def _transact(test: "LoadTest", pace: Pace, consumers: list[Any], producers: list[Any]) -> None:
    payload = stream(fresh_seed(), "perf").randbytes(_PAYLOAD_BYTES)
    while test.take():
        due_s = pace.next_due_s(test.loop.time())
        await asyncio.sleep(max(0.0, due_s - test.loop.time()))
        try:
            sent = await _one(test, payload, consumers, producers)
        except MagnetarError as error:
            test.note_failure(error)
        else:
            test.note(sent * len(payload), test.loop.time() - due_s)


async def _one(test: "LoadTest", payload: bytes, consumers: list[Any], producers: list[Any]) -> int:
    """One transaction, or one task where they are disabled; returns how many messages it sent."""
    given = test.given
    transaction: Any = None
    if not given["txn_disable"]:
        transaction = await test.client.new_transaction(given["txn_timeout"] * 1000)
    for consumer in consumers:
        for _ in range(given["numMessage_perTransaction_consume"]):
            await consumer.acknowledge(await consumer.receive(), txn=transaction)
    receipts = [
        await producer.submit(payload, txn=transaction)
        for producer in producers
        for _ in range(given["numMessage_perTransaction_produce"])
    ]
    for producer in producers:
        await producer.flush()
    for receipt in receipts:
        await receipt
    if transaction is not None:
        await (transaction.abort() if given["abort"] else transaction.commit())
    return len(receipts)
