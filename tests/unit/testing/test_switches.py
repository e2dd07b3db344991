# SPDX-License-Identifier: Apache-2.0
"""The switches of a test's broker: each fault happens, is survived as documented, and what is forgotten is found."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import pytest

from magnetar import InitialPosition
from magnetar.client.message_id import MessageId
from magnetar.errors import MagnetarError
from magnetar.runtime.tasks import Tasks
from magnetar.testing import LocalPulsar, ThreadedPulsar

LoopRun = Callable[[Coroutine[Any, Any, None]], None]
TRANSPORTS: list[Literal["tcp", "memory"]] = ["tcp", "memory"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_cut_off_and_restarted_clients_lose_nothing(loop_run: LoopRun, transport: Literal["tcp", "memory"]) -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport=transport) as pulsar, pulsar.client(initial_backoff_ms=1) as client:
            producer = await client.create_producer("t")
            consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
            await producer.send(b"1")
            pulsar.drop_connections()
            await producer.send(b"2")
            await pulsar.restart()
            await producer.send(b"3")
            assert {(await consumer.receive(5_000)).data() for _ in range(3)} == {b"1", b"2", b"3"}

    loop_run(scenario())


def test_a_slow_disk_delays_receipts_and_nothing_else(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            producer = await client.create_producer("t")
            pulsar.slow_disk(200)
            receipt = await producer.submit(b"slow")
            # The broker answers meanwhile.
            assert await client.get_topic_partitions("t") == ["persistent://public/default/t"]
            assert not receipt.done()
            pulsar.slow_disk(0)
            assert (await receipt).entry_id == 0

    loop_run(scenario())


def test_after_a_storage_error_all_that_was_acknowledged_is_there(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        async with LocalPulsar() as pulsar:
            async with pulsar.client(operation_timeout_seconds=2) as client:
                producer = await client.create_producer("t", send_timeout_millis=300)
                await producer.send(b"acknowledged")
                pulsar.break_disk()
                with pytest.raises(MagnetarError):
                    await producer.send(b"who knows")
            pulsar.mend_disk()
            await pulsar.restart()
            async with pulsar.client() as client:
                reader = await client.create_reader("t", MessageId.earliest)
                assert (await reader.read_next(5_000)).data() == b"acknowledged"
                # And it takes new ones again; the outcome of the one that failed is unknown.
                await (await client.create_producer("t")).send(b"after")

    loop_run(scenario())


def test_a_client_that_is_not_closed_fails_the_test() -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar:
            await pulsar.client().create_producer("t")

    with pytest.raises(AssertionError, match="1 clients of this broker were not closed"):
        asyncio.run(scenario())


def test_a_task_that_is_left_behind_fails_the_test() -> None:
    async def scenario() -> None:
        tasks = Tasks("careless", lambda *_: None)
        async with LocalPulsar(transport="memory") as pulsar:
            tasks.start(pulsar.settle(), "forgotten")
            tasks.start(pulsar.standalone.broker.topics.close(), "done")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            tasks.start(_wait_in_magnetar(waiter), "for ever")

    with pytest.raises(AssertionError, match="tasks were left behind: careless/for ever"):
        asyncio.run(scenario())


def _wait_in_magnetar(waiter: "asyncio.Future[None]") -> Coroutine[Any, Any, None]:
    """A coroutine of Magnetar's own that nobody ends."""
    from magnetar.client.message_queue import MessageQueue

    return MessageQueue().wait()


def test_a_failing_test_is_not_blamed_for_what_it_left(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar:
            await pulsar.client().create_producer("t")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop_run(scenario())


def test_the_blocking_fixture_has_the_same_switches(pulsar: ThreadedPulsar) -> None:
    with pulsar.client() as client:
        producer = client.create_producer("t")
        producer.send(b"1")
        pulsar.slow_disk(1)
        producer.send(b"2")
        pulsar.slow_disk(0)
        pulsar.drop_connections()
        producer.send(b"3")
    pulsar.break_disk()
    pulsar.mend_disk()
    pulsar.restart()
    with pulsar.client() as client:
        reader = client.create_reader("t", MessageId.earliest)
        assert [reader.read_next(5_000).data() for _ in range(3)] == [b"1", b"2", b"3"]


class Heard(logging.Handler):
    """Waits for a line of the log."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.heard = asyncio.Event()
        self._words = words

    def emit(self, record: logging.LogRecord) -> None:
        if self._words in record.getMessage():
            self.heard.set()


@pytest.mark.feature("F-BKC-22", "F-BKS-30")
def test_a_full_disk_holds_messages_back_without_a_ledger_for_each_try(
    loop_run: LoopRun, caplog: pytest.LogCaptureFixture
) -> None:
    """While the bookie is read-only nothing new is begun on it; when it is writable again, what waited is stored."""

    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            producer = await client.create_producer("t")
            await producer.send(b"before")
            pulsar.standalone.storage.ask_read_only(True)
            said = Heard("0 can be chosen")
            log = logging.getLogger("magnetar.managed_ledger.succession")
            log.addHandler(said)
            with caplog.at_level("INFO", logger=log.name):
                receipt = await producer.submit(b"held back")
                await said.heard.wait()
            log.removeHandler(said)
            (topic,) = pulsar.standalone.broker.topics.loaded()
            assert len(list(topic.managed_ledger.ledgers)) == 1
            assert not receipt.done()
            pulsar.standalone.storage.ask_read_only(False)
            assert (await receipt).entry_id == 0

    loop_run(scenario())
