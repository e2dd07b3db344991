# SPDX-License-Identifier: Apache-2.0
"""A message of a transaction whose receipt was lost with its connection is sent again: deduplication knows it."""

import asyncio

from magnetar import Client
from magnetar.errors import MagnetarError
from magnetar.ids import EARLIEST_MESSAGE
from magnetar.testing import LocalPulsar

SETTINGS = {"transactionCoordinatorEnabled": "true", "brokerDeduplicationEnabled": "true"}
# Turns of the loop after which the connection is cut: before the message is stored, while it is, and after its receipt.
TURNS = range(1, 30)


def test_a_message_sent_again_in_its_transaction_is_stored_once() -> None:
    async def scenario() -> None:
        async with LocalPulsar(settings=SETTINGS) as pulsar, Client(pulsar.service_url) as client:
            producer = await client.create_producer("t")
            for turns in TURNS:
                async with client.transaction(timeout_ms=60_000) as txn, asyncio.TaskGroup() as tasks:
                    tasks.create_task(producer.send(b"%d" % turns, txn=txn))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    pulsar.drop_connections()
            reader = await client.create_reader("t", EARLIEST_MESSAGE)
            found = [(await reader.read_next(20_000)).data() for _ in TURNS]
            assert found == [b"%d" % turns for turns in TURNS]
            try:
                more = await reader.read_next(200)
            except MagnetarError:
                return
            raise AssertionError(f"{more.data()!r} is there once more")

    asyncio.run(scenario())
