# SPDX-License-Identifier: Apache-2.0
"""The blocking client, and the asyncio client's ways to its broker, against a real one."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from magnetar import Client as AsyncClient
from magnetar import ConsumerType, InitialPosition, MessageId
from magnetar.blocking import Client
from magnetar.client.schema import STRING
from magnetar.errors import AlreadyClosed, TimedOut
from tests.conformance.client_service import Service, run, service

__all__ = ["service"]


def test_a_program_that_blocks_sends_receives_and_reads(service: Service) -> None:
    topic = service.topic("blocking")
    with Client(service.url) as client:
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
        sent = [producer.send(str(number).encode()) for number in range(10)]
        messages = [consumer.receive(20_000) for _ in range(10)]
        assert [message.message_id() for message in messages] == sent
        for message in messages[:9]:
            consumer.acknowledge(message)
        consumer.negative_acknowledge(messages[9])
        with pytest.raises(TimedOut):
            consumer.receive(50)
        reader = client.create_reader(topic, MessageId.earliest)
        contents = []
        while reader.has_message_available():
            contents.append(reader.read_next(20_000).data())
        assert contents == [str(number).encode() for number in range(10)]
        assert client.get_topic_partitions(topic) == [topic]


def test_callbacks_and_listeners_run_on_the_clients_thread(service: Service, eventually: Callable[..., Any]) -> None:
    topic = service.topic("callbacks")
    receipts: list[Any] = []
    seen: list[tuple[bytes, str]] = []
    with Client(service.url) as client:

        def listen(consumer: Any, message: Any) -> None:
            consumer.acknowledge(message)
            seen.append((message.data(), threading.current_thread().name))

        client.subscribe(topic, "s", initial_position=InitialPosition.Earliest, message_listener=listen)
        producer = client.create_producer(topic)
        for number in range(20):
            producer.send_async(str(number).encode(), lambda error, message_id: receipts.append((error, message_id)))
        producer.flush()
        eventually(lambda: len(seen) == len(receipts) == 20)
    assert [content for content, _ in seen] == [str(number).encode() for number in range(20)]
    assert {name for _, name in seen} == {"magnetar-client"}
    assert all(error is None for error, _ in receipts)


def test_many_threads_share_a_producer(service: Service) -> None:
    topic = service.topic("threads")
    with Client(service.url) as client:
        producer = client.create_producer(topic, schema=STRING)

        def send(name: int) -> None:
            for number in range(20):
                producer.send(f"{name}-{number}")

        threads = [threading.Thread(target=send, args=(name,)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        view = client.create_reader(topic, MessageId.earliest, schema=STRING)
        contents = [view.read_next(20_000).value() for _ in range(100)]
    for name in range(5):
        own = [text for text in contents if text.startswith(f"{name}-")]
        assert own == [f"{name}-{number}" for number in range(20)]


def test_children_of_forks_neither_hang_nor_disturb_the_parent(service: Service) -> None:
    topic = service.topic("forks")
    with Client(service.url) as client:
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        for number in range(30):
            producer.send_async(str(number).encode())
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    producer.send(b"from the child")
                except AlreadyClosed:
                    client.close()
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
        producer.flush()
        contents = [consumer.receive(20_000).data() for _ in range(30)]
        assert contents == [str(number).encode() for number in range(30)]


def test_a_child_may_have_a_client_of_its_own(service: Service) -> None:
    topic = service.topic("own-client")
    with Client(service.url) as client:
        client.create_producer(topic).send(b"parent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                own = Client(service.url)
                own.create_producer(topic).send(b"child")
                own.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        reader = client.create_reader(topic, MessageId.earliest)
        assert [reader.read_next(20_000).data() for _ in range(2)] == [b"parent", b"child"]


def test_a_closed_client_says_so(service: Service) -> None:
    client = Client(service.url)
    producer = client.create_producer(service.topic("closed"))
    client.close()
    client.close()
    with pytest.raises(AlreadyClosed):
        producer.send(b"x")
    assert not [thread for thread in threading.enumerate() if thread.name == "magnetar-client"]


def test_a_waiting_receive_is_interrupted_by_closing(service: Service) -> None:
    client = Client(service.url)
    consumer = client.subscribe(service.topic("interrupted"), "s")
    outcome: list[BaseException] = []

    def receive() -> None:
        try:
            consumer.receive()
        except AlreadyClosed as error:
            outcome.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    while not thread.is_alive():
        time.sleep(0.001)
    client.close()
    thread.join(20)
    assert len(outcome) == 1


@pytest.mark.feature("F-CLNT-05")
def test_look_ups_go_over_http_too(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("http")
        async with AsyncClient(service.web_url) as client:
            producer = await client.create_producer(topic)
            await producer.send(b"x")
            reader = await client.create_reader(topic, MessageId.earliest)
            assert (await reader.read_next(20_000)).data() == b"x"

    run(test())
