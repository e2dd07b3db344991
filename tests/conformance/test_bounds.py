# SPDX-License-Identifier: Apache-2.0
"""The broker's bounds on one client and on all of them, reached over raw sockets: refused, and then served again."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from magnetar.wire import commands
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw_client import RawClient, Type, body
from tests.conftest import Eventually
from tests.processes import StandaloneProcess

TOPIC = "persistent://public/default/bounds"
BOUNDS = {
    "connections_max": 8,
    "producers_per_connection_max": 21,
    "consumers_per_connection_max": 3,
    "topic_watchers_per_connection_max": 2,
    "session_requests_max": 20,
    "exclusive_waiters_per_topic_max": 2,
}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess, None, None]:
    directory: Path = tmp_path_factory.mktemp("bounds")
    environment = {f"MAGNETAR_BROKER_{name.upper()}": str(value) for name, value in BOUNDS.items()}
    with StandaloneProcess(directory, environment=environment) as process:
        yield process


def subscribe(client: RawClient, consumer_id: int) -> pb.BaseCommand:
    request_id = client.request_id()
    client.say(
        Type.SUBSCRIBE,
        pb.CommandSubscribe(
            topic=TOPIC,
            subscription=f"s{consumer_id}",
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=consumer_id,
            request_id=request_id,
        ),
    )
    return client.answer_to(request_id)


def watch(client: RawClient, watcher_id: int, **fields: Any) -> pb.BaseCommand:
    request_id = client.request_id()
    client.say(
        Type.WATCH_TOPIC_LIST,
        pb.CommandWatchTopicList(
            request_id=request_id, watcher_id=watcher_id, namespace="public/default", topics_pattern=".*", **fields
        ),
    )
    return client.answer_to(request_id)


def test_connections(standalone: StandaloneProcess, eventually: Eventually) -> None:
    """F141: beyond the bound nobody is let in, nobody loses what is open, and places that are left are taken again."""
    clients = [RawClient(standalone.port) for _ in range(8)]
    with RawClient(standalone.port, connect=False) as refused:
        assert refused.is_closed_by_broker()
    assert not any(client.is_closed_by_broker() for client in clients)
    for client in clients:
        client.close()

    def is_served() -> bool:
        with RawClient(standalone.port, connect=False) as client:
            client.say(Type.CONNECT, pb.CommandConnect(client_version="raw", protocol_version=21))
            return client.next() is not None

    eventually(is_served)


def test_producers_of_a_connection(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        for producer_id in range(21):
            assert client.open_producer(TOPIC, producer_id).type == Type.PRODUCER_SUCCESS
        assert client.open_producer(TOPIC, 21).error.error == pb.TooManyRequests
        client.close_producer(0)
        assert client.open_producer(TOPIC, 21).type == Type.PRODUCER_SUCCESS


def test_consumers_of_a_connection(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        for consumer_id in range(3):
            assert subscribe(client, consumer_id).type == Type.SUCCESS
        assert subscribe(client, 3).error.error == pb.TooManyRequests
        client.say(Type.CLOSE_CONSUMER, pb.CommandCloseConsumer(consumer_id=0, request_id=9))
        assert client.answer_to(9).type == Type.SUCCESS
        assert subscribe(client, 3).type == Type.SUCCESS


def test_watchers_of_a_connection(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        for watcher_id in range(2):
            assert watch(client, watcher_id).type == Type.WATCH_TOPIC_LIST_SUCCESS
        assert watch(client, 2).error.error == pb.TooManyRequests
        assert watch(client, 1).error.error == pb.ServiceNotReady


def test_producers_that_wait_for_exclusive_access(standalone: StandaloneProcess) -> None:
    topic = "persistent://public/default/waited-for"
    with RawClient(standalone.port) as holder, RawClient(standalone.port) as client:
        assert holder.open_producer(topic, producer_access_mode=pb.Exclusive).producer_success.producer_ready
        for producer_id in range(2):
            answer = client.open_producer(topic, producer_id, producer_access_mode=pb.WaitForExclusive)
            assert not answer.producer_success.producer_ready
        answer = client.open_producer(topic, 2, producer_access_mode=pb.WaitForExclusive)
        assert answer.error.error == pb.TooManyRequests


def test_requests_that_wait(standalone: StandaloneProcess, eventually: Eventually) -> None:
    """Producers that wait for exclusive access are requests that wait until somebody else is done."""
    topics = [f"{TOPIC}-waited-for-{number}" for number in range(10)]
    with RawClient(standalone.port) as holder, RawClient(standalone.port) as client:
        for number, topic in enumerate(topics):
            holder.open_producer(topic, number, producer_access_mode=pb.Exclusive)

        def waits(number: int) -> bool:
            mode = pb.WaitForExclusive
            answer = client.open_producer(topics[number % len(topics)], number, producer_access_mode=mode)
            assert answer.type in (Type.PRODUCER_SUCCESS, Type.ERROR), answer
            return answer.type == Type.PRODUCER_SUCCESS and not answer.producer_success.producer_ready

        # An answer may arrive a moment before its request counts no more: where the bound is near, ask again.
        for number in range(19):
            assert waits(number)
        eventually(lambda: error_of_lookup(client) is None)
        eventually(lambda: waits(19))
        assert [error_of_lookup(client) for _ in range(50)] == [pb.TooManyRequests] * 50
        assert error_of_lookup(holder) is None, "it is one connection's bound"
        holder.close_producer(0)
        assert client.expect(Type.PRODUCER_SUCCESS).producer_success.producer_ready
        eventually(lambda: error_of_lookup(client) is None)


def error_of_lookup(client: RawClient) -> int | None:
    """What a look-up is refused with; None when it is answered."""
    request_id = client.request_id()
    client.say(Type.LOOKUP, pb.CommandLookupTopic(topic=f"{TOPIC}-{request_id}", request_id=request_id))
    answer = client.expect(Type.LOOKUP_RESPONSE).lookupTopicResponse
    assert answer.request_id == request_id
    return answer.error if answer.response == answer.Failed else None


def test_a_client_that_asks_for_lists_and_never_reads_costs_little(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as greedy, RawClient(standalone.port) as other:
        for producer_id in range(3):
            other.open_producer("persistent://public/default/" + f"{producer_id}" * 2_000, producer_id)
        for _ in range(200):
            greedy.say_bytes(
                b"".join(
                    commands.encode(
                        Type.GET_TOPICS_OF_NAMESPACE,
                        pb.CommandGetTopicsOfNamespace(request_id=number, namespace="public/default"),
                    )
                    for number in range(19)
                )
            )
        assert not other.is_closed_by_broker(), "others are served meanwhile"
        answered = 0
        while answered < 19:
            command = greedy.next()
            assert command is not None
            answered += 1


def test_a_flood_of_tiny_messages_is_counted_with_what_each_of_them_costs(tmp_path: Path) -> None:
    environment = {"MAGNETAR_BROKER_CONNECTION_PUBLISH_BYTES_MAX": "65536"}
    with StandaloneProcess(tmp_path, environment=environment) as standalone, RawClient(standalone.port) as client:
        client.open_producer(TOPIC)
        tiny = body(payload=b"")
        for sequence_id in range(5_000):
            client.send(sequence_id=sequence_id, data=tiny)
        received = [client.expect(Type.SEND_RECEIPT).send_receipt.sequence_id for _ in range(5_000)]
        assert received == list(range(5_000))
