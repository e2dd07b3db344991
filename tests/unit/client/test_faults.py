# SPDX-License-Identifier: Apache-2.0
"""The client against a broker that fails on purpose: every error and every cut of the connection, at every step."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from magnetar import AuthenticationToken, AutoClusterFailover, Client, ProducerAccessMode
from magnetar.errors import (
    AlreadyClosed,
    ConnectionLost,
    MagnetarError,
    MemoryLimitReached,
    NotAuthenticated,
    NotAuthorized,
    NotSupported,
    ProducerFenced,
    TimedOut,
    TooManyRedirects,
    TopicNotFound,
    TopicTerminated,
)
from magnetar.wire import commands
from magnetar.wire.commands import Type
from magnetar.wire.error_codes import error_of_server_error
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conftest import run_without_leaks
from tests.unit.client.fake_broker import FakeBroker, FakeConnection

TOPIC = "persistent://public/default/t"
QUICK: Any = {"initial_backoff_ms": 1, "backoff_ms_max": 5}


def run(test: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await test

    run_without_leaks(limited(), asyncio.new_event_loop)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 the condition is the broker's
        await asyncio.sleep(0.001)


class CutAfter:
    """Cuts the connection at the nth command of the whole test, before or instead of serving it; once."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.has_cut = False

    def __call__(self, connection: FakeConnection, command: pb.BaseCommand) -> bool:
        self._left -= 1
        if self._left != 0:
            return False
        self.has_cut = True
        connection.cut()
        return True


async def publish_and_consume(broker: FakeBroker) -> None:
    """A whole life: connect, look up, produce, consume, acknowledge, close."""
    async with Client(broker.url, **QUICK) as client:
        producer = await client.create_producer(TOPIC, send_timeout_millis=20_000)
        receipts = [await producer.submit(str(number).encode()) for number in range(20)]
        for receipt in receipts:
            await receipt
        consumer = await client.subscribe(TOPIC, "s", ack_group_time_ms=1)
        seen: dict[bytes, None] = {}
        while len(seen) < 20:
            message = await consumer.receive(20_000)
            seen[message.data()] = None
            await consumer.acknowledge(message)
        assert list(seen) == [str(number).encode() for number in range(20)]
        await consumer.close()
        await producer.close()


@pytest.mark.feature("F-CLNT-08", "F-CONS-32", "F-PROD-38")
def test_a_cut_at_any_step_loses_nothing_and_keeps_the_order() -> None:
    async def test() -> None:
        step = 0
        while True:
            step += 1
            async with FakeBroker() as broker:
                cut = CutAfter(step)
                broker.faults.append(cut)
                await publish_and_consume(broker)
                firsts = list(dict.fromkeys(broker.contents(TOPIC)))
                assert firsts == [str(number).encode() for number in range(20)], f"cut at command {step}"
                if not cut.has_cut:
                    assert step > 30
                    return

    run(test())


@pytest.mark.parametrize("code", [code for code in pb.ServerError.values() if code != pb.UnknownError])
@pytest.mark.parametrize("kind", [Type.PARTITIONED_METADATA, Type.LOOKUP, Type.PRODUCER])
def test_every_error_is_raised_or_tried_again(kind: int, code: int) -> None:
    """A refusal that a retry helps against is tried again; any other is raised, as its own class."""
    kind_of_error = type(error_of_server_error(code, ""))

    async def test() -> None:
        async with FakeBroker() as broker:
            refused: list[int] = []

            def refuse_once(connection: FakeConnection, command: pb.BaseCommand) -> bool:
                if command.type != kind or refused:
                    return False
                refused.append(command.type)
                connection.refuse(command, code, "because")
                return True

            broker.faults.append(refuse_once)
            async with Client(broker.url, **QUICK) as client:
                if kind_of_error.retryable:
                    producer = await client.create_producer(TOPIC)
                    await producer.send(b"x")
                else:
                    with pytest.raises(kind_of_error, match="because"):
                        await client.create_producer(TOPIC)
            assert refused

    run(test())


def test_a_refused_connection_says_why() -> None:
    async def test() -> None:
        async with FakeBroker() as broker:

            def refuse(connection: FakeConnection, command: pb.BaseCommand) -> bool:
                if command.type != Type.CONNECT:
                    return False
                connection.refuse(command, pb.AuthenticationError, "who are you")
                return True

            broker.faults.append(refuse)
            async with Client(broker.url, **QUICK) as client:
                with pytest.raises(NotAuthenticated, match="who are you"):
                    await client.create_producer(TOPIC)

    run(test())


@pytest.mark.feature("F-CLNT-06")
def test_hosts_of_the_service_url_are_tried_in_turn() -> None:
    async def test() -> None:
        async with FakeBroker() as broker:
            live = broker.url.removeprefix("pulsar://")
            async with Client(f"pulsar://127.0.0.1:1,{live},127.0.0.1:2", **QUICK) as client:
                producer = await client.create_producer(TOPIC)
                await producer.send(b"x")

    run(test())


@pytest.mark.feature("F-CLNT-01", "F-CLNT-02")
def test_everyone_shares_one_connection_to_a_broker() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, Client(broker.url) as client:
            await asyncio.gather(*(client.create_producer(f"{TOPIC}-{number}") for number in range(10)))
            await asyncio.gather(*(client.subscribe(f"{TOPIC}-{number}", "s") for number in range(10)))
            assert len(broker.connections) == client.connections == 1

    run(test())


def test_redirects_are_followed_up_to_the_limit() -> None:
    async def test() -> None:
        async with FakeBroker() as broker:
            redirects: list[bool] = []

            def redirect(connection: FakeConnection, command: pb.BaseCommand) -> bool:
                if command.type != Type.LOOKUP or len(redirects) >= limit:
                    return False
                redirects.append(command.lookupTopic.authoritative)
                answer = pb.CommandLookupTopicResponse(
                    request_id=command.lookupTopic.request_id,
                    brokerServiceUrl=broker.url,
                    response=pb.CommandLookupTopicResponse.Redirect,
                    authoritative=True,
                )
                connection.answer(Type.LOOKUP_RESPONSE, answer)
                return True

            broker.faults.append(redirect)
            limit = 3
            async with Client(broker.url, lookup_redirects_max=3) as client:
                await client.create_producer(TOPIC)
                assert redirects == [False, True, True]
            redirects.clear()
            limit = 10_000
            async with Client(broker.url, lookup_redirects_max=3, operation_timeout_seconds=0.05) as client:
                with pytest.raises(TooManyRedirects):
                    await client.create_producer(TOPIC)

    run(test())


@pytest.mark.feature("F-CLNT-09")
def test_a_silent_broker_is_given_up_after_two_intervals() -> None:
    async def test() -> None:
        async with FakeBroker() as broker:
            silent = [False]
            broker.faults.append(lambda connection, command: silent[0])
            async with Client(
                broker.url, keep_alive_interval_seconds=0.05, connection_timeout_ms=200, **QUICK
            ) as client:
                producer = await client.create_producer(TOPIC)
                silent[0] = True
                receipt = await producer.submit(b"x")
                await until(lambda: not broker.connections)
                silent[0] = False
                await receipt

    run(test())


@pytest.mark.feature("F-PROD-15")
def test_a_skipped_receipt_has_everything_sent_again() -> None:
    async def test() -> None:
        async with FakeBroker() as broker:
            skipped: list[int] = []

            def skip(connection: FakeConnection, command: pb.BaseCommand) -> bool:
                if command.type != Type.SEND or command.send.sequence_id != 1 or skipped:
                    return False
                skipped.append(1)
                return True

            broker.faults.append(skip)
            async with Client(broker.url, **QUICK) as client:
                producer = await client.create_producer(TOPIC)
                receipts = [await producer.submit(str(number).encode()) for number in range(4)]
                for receipt in receipts:
                    await receipt
                assert set(broker.contents(TOPIC)) == {b"0", b"1", b"2", b"3"}
                assert broker.count("PRODUCER") == 2

    run(test())


@pytest.mark.feature("F-PROD-24", "F-PROD-25")
def test_a_refused_message_is_raised_sent_again_or_ends_the_producer() -> None:
    async def test() -> None:
        async with FakeBroker() as broker:
            codes: list[int] = []

            def refuse(connection: FakeConnection, command: pb.BaseCommand) -> bool:
                if command.type != Type.SEND or not codes:
                    return False
                connection.refuse(command, codes.pop(0), "refused")
                return True

            broker.faults.append(refuse)
            async with Client(broker.url, **QUICK) as client:
                producer = await client.create_producer(TOPIC)
                codes[:] = [pb.ChecksumError, pb.PersistenceError]
                await producer.send(b"sent again")
                codes[:] = [pb.NotAllowedError]
                with pytest.raises(NotSupported):
                    await producer.send(b"not this one")
                await producer.send(b"but this")
                codes[:] = [pb.TopicTerminatedError]
                with pytest.raises(TopicTerminated):
                    await producer.send(b"too late")
                with pytest.raises(TopicTerminated):
                    await producer.send(b"much too late")
                assert broker.contents(TOPIC) == [b"sent again", b"but this"]

    run(test())


@pytest.mark.feature("F-PROD-37")
def test_a_message_without_a_receipt_times_out() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, Client(broker.url) as client:
            producer = await client.create_producer(TOPIC, send_timeout_millis=50)
            broker.faults.append(lambda connection, command: command.type == Type.SEND)
            with pytest.raises(TimedOut):
                await producer.send(b"x")
            broker.faults.clear()
            await producer.send(b"y")

    run(test())


@pytest.mark.feature("F-PROD-07")
def test_a_fenced_producer_never_comes_back() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, Client(broker.url, **QUICK) as client:
            producer = await client.create_producer(TOPIC, access_mode=ProducerAccessMode.Exclusive)

            def fence(connection: FakeConnection, command: pb.BaseCommand) -> bool:
                if command.type == Type.PRODUCER:
                    connection.refuse(command, pb.ProducerFenced, "another one is here")
                return command.type == Type.PRODUCER

            broker.faults.append(fence)
            broker.cut_all()
            with pytest.raises(ProducerFenced):
                await producer.send(b"x")
            assert broker.count("PRODUCER") == 2

    run(test())


def test_requests_without_an_answer_time_out_and_leave_nothing_behind() -> None:
    async def test() -> None:
        async with FakeBroker() as broker:
            broker.faults.append(lambda connection, command: command.type == Type.PRODUCER)
            async with Client(broker.url, operation_timeout_seconds=0.05, **QUICK) as client:
                with pytest.raises(TimedOut):
                    await client.create_producer(TOPIC)
            assert broker.count("CLOSE_PRODUCER") == broker.count("PRODUCER")

    run(test())


def test_creating_can_be_cancelled_at_any_moment() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, Client(broker.url, **QUICK) as client:
            for turns in range(40):
                task = asyncio.ensure_future(client.create_producer(TOPIC))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                outcome = (await asyncio.gather(task, return_exceptions=True))[0]
                if not isinstance(outcome, BaseException):
                    await outcome.close()
            survivor = await client.create_producer(TOPIC)
            await survivor.send(b"x")
            await until(lambda: sum(len(connection.producers) for connection in broker.connections) == 1)

    run(test())


class HeldBack:
    """A broker that does not answer commands of one kind until it is told to; after that, it answers all of them."""

    def __init__(self, kind: "Type.ValueType") -> None:
        self._kind: Type.ValueType | None = kind
        self.held: list[tuple[FakeConnection, pb.BaseCommand]] = []

    def __call__(self, connection: FakeConnection, command: pb.BaseCommand) -> bool:
        if command.type != self._kind:
            return False
        self.held.append((connection, command))
        return True

    def let_go(self) -> None:
        self._kind = None
        for connection, command in self.held:
            if connection in connection.broker.connections:
                getattr(connection, f"on_{commands.name_of(command).lower()}")(commands.body_of(command))


def registered(broker: FakeBroker) -> int:
    return sum(len(each.producers) + len(each.consumers) for each in broker.connections)


@pytest.mark.parametrize("is_answered_late", [True, False])
@pytest.mark.parametrize(
    ("what", "step"),
    [
        *(("producer", step) for step in (Type.CONNECT, Type.LOOKUP, Type.PRODUCER)),
        *(("consumer", step) for step in (Type.CONNECT, Type.LOOKUP, Type.SUBSCRIBE)),
    ],
)
def test_who_closes_while_it_connects_again_leaves_nobody_at_the_broker(
    what: str, step: "Type.ValueType", is_answered_late: bool
) -> None:
    """F100: at each step of connecting again; and a second cut meanwhile leaves one that stays where it was."""

    async def test() -> None:
        async with FakeBroker() as broker, Client(broker.url, operation_timeout_seconds=5, **QUICK) as client:
            staying = await client.create_producer(f"{TOPIC}-stays")
            leaving: Any = await (
                client.create_producer(TOPIC)
                if what == "producer"
                else client.subscribe(TOPIC, "s", ack_group_time_ms=1)
            )
            held = HeldBack(step)
            broker.faults.append(held)
            for _ in range(2):
                broker.cut_all()
                asked = len(held.held)
                # Both are on their way; where the connection itself waits, they wait for the same one.
                await until(lambda asked=asked: len(held.held) > asked)  # type: ignore[misc]
            closing = asyncio.ensure_future(leaving.close())
            await asyncio.sleep(0)
            if not is_answered_late:
                broker.faults.remove(held)
                broker.cut_all()
            held.let_go()
            await closing
            await staying.send(b"still there")
            await until(lambda: registered(broker) == 1)
            again: Any = await (client.create_producer(TOPIC) if what == "producer" else client.subscribe(TOPIC, "s"))
            assert registered(broker) == 2
            await again.close()
            await until(lambda: registered(broker) == 1)
            assert client.open_parts == 1

    run(test())


def test_a_dead_service_is_an_error_that_names_it() -> None:
    async def test() -> None:
        async with Client("pulsar://127.0.0.1:1", operation_timeout_seconds=0.02, **QUICK) as client:
            with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
                await client.subscribe(TOPIC, "s")

    run(test())


def test_an_error_says_whether_a_retry_helps() -> None:
    helps = {kind for kind in (ConnectionLost, TimedOut, TooManyRedirects) if kind.retryable}
    never: set[type[MagnetarError]] = {AlreadyClosed, NotAuthorized, TopicNotFound, TopicTerminated}
    assert len(helps) == 3
    assert not [kind for kind in never if kind.retryable]


def test_the_child_of_a_fork_is_told_to_make_its_own_client() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, Client(broker.url) as client:
            producer = await client.create_producer(TOPIC)
            for number in range(20):
                await producer.submit(str(number).encode())
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        producer.submit(b"from the child").send(None)
                    except AlreadyClosed:
                        code = 0
                    finally:
                        os._exit(code)
                _, status = os.waitpid(child, 0)  # noqa: ASYNC222 the child ends at once
                assert status == 0
            await producer.flush()
            assert broker.contents(TOPIC) == [str(number).encode() for number in range(20)]

    run(test())


def test_a_client_goes_to_the_secondary_cluster_and_back() -> None:
    async def test() -> None:
        async with FakeBroker() as second:
            async with FakeBroker() as first:
                port = int(first.url.rpartition(":")[2])
                wanted = AutoClusterFailover(first.url, [second.url], 10, 20, 20)
                client = Client(wanted, **QUICK)
                producer = await client.create_producer(TOPIC, send_timeout_millis=0)
                await producer.send(b"first")
            await producer.send(b"second")
            assert (first.contents(TOPIC), second.contents(TOPIC)) == ([b"first"], [b"second"])
            async with FakeBroker(port=port) as first:
                await until(lambda: client.service_url == first.url)
                await producer.send(b"back")
                assert first.contents(TOPIC) == [b"back"]
                await client.close()

    run(test())


@pytest.mark.feature("F-CLNT-07")
def test_unconfirmed_messages_are_bounded_by_memory_too() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, Client(broker.url, memory_limit_bytes=10_000) as client:
            broker.faults.append(lambda connection, command: command.type == Type.SEND)
            producer = await client.create_producer(TOPIC, send_timeout_millis=100)
            await producer.submit(bytes(9_000))
            await producer.submit(bytes(9_000))
            with pytest.raises(MemoryLimitReached):
                await producer.submit(b"x")
            waiting = await client.create_producer(f"{TOPIC}-2", block_if_queue_full=True, send_timeout_millis=100)
            receipt = await waiting.submit(b"after the others timed out")
            with pytest.raises(TimedOut):
                await receipt

    run(test())


def test_a_damaged_message_is_named_to_the_broker_and_skipped() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, Client(broker.url) as client:
            producer = await client.create_producer(TOPIC)
            for content in (b"good", b"damaged", b"good too"):
                await producer.send(content)
            entry = bytearray(broker.entries[TOPIC][1])
            entry[-1] ^= 1
            broker.entries[TOPIC][1] = bytes(entry)
            reasons: list[int] = []

            def note(connection: FakeConnection, command: pb.BaseCommand) -> bool:
                if command.type == Type.ACK and command.ack.HasField("validation_error"):
                    reasons.append(command.ack.validation_error)
                return False

            broker.faults.append(note)
            consumer = await client.subscribe(TOPIC, "s")
            contents = [(await consumer.receive()).data() for _ in range(2)]
            assert contents == [b"good", b"good too"]
            await until(lambda: reasons == [pb.CommandAck.ChecksumMismatch])

    run(test())


@pytest.mark.feature("F-CLNT-10")
def test_a_challenge_is_answered_with_fresh_credentials() -> None:
    async def test() -> None:
        tokens = iter(["old", "new"])
        async with FakeBroker() as broker:
            answered: list[bytes] = []

            def note(connection: FakeConnection, command: pb.BaseCommand) -> bool:
                if command.type == Type.CONNECT:
                    assert (command.connect.auth_method_name, command.connect.auth_data) == ("token", b"old")
                if command.type == Type.AUTH_RESPONSE:
                    answered.append(command.authResponse.response.auth_data)
                return command.type == Type.AUTH_RESPONSE

            broker.faults.append(note)
            async with Client(broker.url, AuthenticationToken(lambda: next(tokens))) as client:
                await client.create_producer(TOPIC)
                broker.connections[0].answer(Type.AUTH_CHALLENGE, pb.CommandAuthChallenge())
                await until(lambda: answered == [b"new"])

    run(test())


def test_a_topic_that_moves_is_followed() -> None:
    """The broker closes producer and consumer, and names the broker that has the topic now."""

    async def test() -> None:
        async with FakeBroker() as old, FakeBroker() as new, Client(old.url, **QUICK) as client:
            producer = await client.create_producer(TOPIC)
            consumer = await client.subscribe(TOPIC, "s", ack_group_time_ms=0)
            await producer.send(b"old")
            await consumer.acknowledge(await consumer.receive())
            connection = old.connections[0]
            connection.answer(
                Type.CLOSE_PRODUCER,
                pb.CommandCloseProducer(producer_id=0, request_id=0, assignedBrokerServiceUrl=new.url),
            )
            connection.answer(
                Type.CLOSE_CONSUMER,
                pb.CommandCloseConsumer(consumer_id=0, request_id=0, assignedBrokerServiceUrl=new.url),
            )
            await until(lambda: new.count("PRODUCER") == new.count("SUBSCRIBE") == 1)
            await producer.send(b"new")
            assert (await consumer.receive()).data() == b"new"
            assert old.count("LOOKUP") == 2

    run(test())


def test_nonsense_from_the_broker_breaks_the_connection_and_not_the_client() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, Client(broker.url, **QUICK) as client:
            producer = await client.create_producer(TOPIC)
            for nonsense in (
                b"\x00\x00\x00\x02xx",
                b"\xff\xff\xff\xff\x00\x00\x00\x00",
                b"\x00\x00\x00\x06\x00\x00\x00\x02\x08\x09",
                b"\x00\x00\x00\x06\x00\x00\x00\x02\x08\x07",
                b"\x00\x00\x00\x06\x00\x00\x00\x02\x08\x02",
                b"\x00\x00\x00\x08\x00\x00\x00\x04\xff\xff\xff\xff",
            ):
                broken = broker.connections[0]
                broken.write(nonsense)
                await until(lambda broken=broken: broken not in broker.connections)  # type: ignore[misc]
                await producer.send(nonsense)
            assert len(broker.contents(TOPIC)) == 6

    run(test())


def test_many_lives_leave_nothing_behind() -> None:
    """Tasks, timers and registrations of what was closed are gone."""

    async def test() -> None:
        async with FakeBroker() as broker, Client(broker.url) as client:
            await client.create_producer(f"{TOPIC}-first")
            tasks = len(asyncio.all_tasks())
            for _ in range(50):
                producer = await client.create_producer(TOPIC, batching_enabled=True)
                consumer = await client.subscribe(TOPIC, "s", unacked_messages_timeout_ms=1_000)
                await producer.send(b"x")
                await consumer.receive()
                await consumer.close()
                await producer.close()
            assert len(asyncio.all_tasks()) == tasks
            (connection,) = broker.connections
            assert (len(connection.producers), len(connection.consumers)) == (1, 0)
            assert client.open_parts == 1

    run(test())


def test_credentials_that_fail_for_a_while_are_asked_for_again() -> None:
    async def test() -> None:
        async with FakeBroker() as broker:
            outcomes = ["ok", None, None, "ok"]

            def supply() -> str:
                outcome = outcomes.pop(0) if outcomes else "ok"
                if outcome is None:
                    raise OSError("the vault is sealed")
                return outcome

            async with Client(broker.url, AuthenticationToken(supply), **QUICK) as client:
                producer = await client.create_producer(TOPIC)
                broker.cut_all()
                await producer.send(b"x")
                assert not outcomes

    run(test())
