# SPDX-License-Identifier: Apache-2.0
"""`magnetar perf transaction`: as many transactions as were asked for, whole or not at all."""

import asyncio
import json

import pytest

from magnetar.cli.perf_commands import COMMON, TRANSACTION
from magnetar.cli.perf_work import load_test
from magnetar.client.options import InitialPosition
from magnetar.errors import TimedOut
from magnetar.testing.local_pulsar import LocalPulsar


@pytest.mark.feature("B-18")
@pytest.mark.parametrize(("ending", "arrived"), [([], 6), (["-abort"], 0), (["--txn-disable"], 6)])
def test_transactions_are_made_and_counted(capsys: pytest.CaptureFixture[str], ending: list[str], arrived: int) -> None:
    async def scenario() -> None:
        settings = {"transactionCoordinatorEnabled": "true"}
        async with LocalPulsar(transport="memory", settings=settings) as pulsar, pulsar.client() as client:
            producer = await client.create_producer("in")
            for number in range(3):
                await producer.send(str(number).encode())
            words = ["--topics-c", "in", "--topics-p", "out", "-ntxn", "3", "-nmp", "2", "--json", *ending]
            assert await load_test(client, TRANSACTION.read(words, more=COMMON), "transaction", []) == 0
            sent = await client.subscribe("out", "s", initial_position=InitialPosition.Earliest)
            for _ in range(arrived):
                await sent.receive(timeout_millis=20_000)
            with pytest.raises(TimedOut):
                await sent.receive(timeout_millis=20)

    asyncio.run(scenario())
    result = json.loads(capsys.readouterr().out)
    assert (result["messages"], result["failures"]) == (3, 0)
    assert result["bytes"] == 3 * 2 * 1024
