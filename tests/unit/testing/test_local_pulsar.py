# SPDX-License-Identifier: Apache-2.0
"""The broker that tests of others use: isolated, restartable, honest about failures."""

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any

import pulsar as official
import pytest

from magnetar.errors import StorageFailed
from magnetar.testing import LocalPulsar, ThreadedPulsar

QUIET = official.ConsoleLogger(official.LoggerLevel.Error)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_the_official_client_works_against_the_fixture(pulsar: ThreadedPulsar) -> None:
    client = official.Client(pulsar.service_url, logger=QUIET)
    consumer = client.subscribe("orders", "shop")
    client.create_producer("orders").send(b"one tea")
    message = consumer.receive(timeout_millis=5_000)
    assert message.data() == b"one tea"
    consumer.acknowledge(message)
    client.close()


def test_a_restart_keeps_port_and_data(pulsar: ThreadedPulsar) -> None:
    url = pulsar.service_url
    client = official.Client(url, logger=QUIET)
    client.create_producer("kept").send(b"before")
    pulsar.restart()
    assert pulsar.service_url == url
    reader = client.create_reader("kept", official.MessageId.earliest)
    assert reader.read_next(timeout_millis=10_000).data() == b"before"
    client.close()


def test_a_dropped_connection_is_mended_by_the_client(pulsar: ThreadedPulsar) -> None:
    client = official.Client(pulsar.service_url, logger=QUIET)
    producer = client.create_producer("mended")
    producer.send(b"one")
    pulsar.drop_connections()
    producer.send(b"two")
    reader = client.create_reader("mended", official.MessageId.earliest)
    assert [reader.read_next(timeout_millis=10_000).data() for _ in range(2)] == [b"one", b"two"]
    client.close()


def test_many_brokers_in_one_loop_are_strangers() -> None:
    async def main() -> None:
        brokers = [LocalPulsar() for _ in range(10)]
        for broker in brokers:
            await broker.__aenter__()
        assert len({broker.service_url for broker in brokers}) == 10
        for broker in brokers:
            await broker.__aexit__(None, None, None)

    run(main())


def test_a_broken_disk_fails_the_test_that_ignored_it() -> None:
    def refuse(call: Any) -> None:
        if call.call.value == "sync":
            raise OSError(errno.EIO, "broken")

    async def main() -> None:
        async with LocalPulsar() as broker:
            broker.disk_faults.on_call = refuse
            with pytest.raises(StorageFailed):
                await broker.standalone.store.put("/anything", b"value")

    with pytest.raises(AssertionError, match="the broker failed during the test"):
        run(main())


def test_pulsars_own_keys_are_settings() -> None:
    async def main() -> None:
        async with LocalPulsar(settings={"maxMessageSize": "2048"}) as broker:
            assert broker.standalone.broker.settings.message_bytes_max == 2048

    run(main())
