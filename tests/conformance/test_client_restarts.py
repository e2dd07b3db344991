# SPDX-License-Identifier: Apache-2.0
"""The client while its broker is killed, restarted and paused: nothing confirmed is lost, and it comes back."""

import asyncio
import threading
from pathlib import Path

import pytest

from magnetar import Client, InitialPosition, MessageId, Receipt
from tests.conformance.client_service import run
from tests.processes import StandaloneProcess

TOPIC = "persistent://public/default/restarts"


@pytest.mark.feature("F-CLNT-08", "F-PROD-44", "F-CONS-32")
def test_producer_and_consumer_live_through_kill_9(tmp_path: Path) -> None:
    async def test(standalone: StandaloneProcess) -> None:
        loop = asyncio.get_running_loop()
        async with Client(standalone.service_url, backoff_ms_max=200) as client:
            producer = await client.create_producer(TOPIC, send_timeout_millis=0, block_if_queue_full=True)
            consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
            # What one subscription has acknowledged stays for this one, which never does.
            await client.subscribe(TOPIC, "keeper", initial_position=InitialPosition.Earliest)
            receipts: list[Receipt] = []
            seen: dict[bytes, None] = {}

            async def consume() -> None:
                async for message in consumer:
                    seen[message.data()] = None
                    await consumer.acknowledge(message)

            consuming = asyncio.ensure_future(consume())
            for round_number in range(3):
                receipts += [await producer.submit(f"{round_number}-{number}".encode()) for number in range(300)]
                if round_number < 2:
                    await receipts[-200]
                    await asyncio.to_thread(_restart, standalone)
            await producer.flush()
            assert all(receipt.exception() is None for receipt in receipts)
            sent = [f"{round_number}-{number}".encode() for round_number in range(3) for number in range(300)]
            until = loop.time() + 30
            while len(seen) < len(sent):
                assert loop.time() < until
                await asyncio.sleep(0.01)
            assert list(seen) == sent
            await consumer.close()
            await consuming
            reader = await client.create_reader(TOPIC, MessageId.earliest)
            stored = []
            while await reader.has_message_available():
                stored.append((await reader.read_next(20_000)).data())
            assert list(dict.fromkeys(stored)) == sent

    def _restart(standalone: StandaloneProcess) -> None:
        standalone.kill()
        standalone.start()

    with StandaloneProcess(tmp_path) as standalone:
        before = set(threading.enumerate())

        async def without_pool() -> None:
            await test(standalone)
            await asyncio.get_running_loop().shutdown_default_executor()

        run(without_pool())
        assert set(threading.enumerate()) == before


def test_a_paused_broker_is_waited_for(tmp_path: Path) -> None:
    async def test(standalone: StandaloneProcess) -> None:
        async with Client(standalone.service_url, keep_alive_interval_seconds=0.2, backoff_ms_max=100) as client:
            producer = await client.create_producer(TOPIC, send_timeout_millis=0)
            await producer.send(b"before")
            standalone.pause()
            receipt = await producer.submit(b"meanwhile")
            while producer.is_connected():  # noqa: ASYNC110 the condition is another process's
                await asyncio.sleep(0.01)
            standalone.resume()
            await receipt

    with StandaloneProcess(tmp_path) as standalone:
        run(test(standalone))
