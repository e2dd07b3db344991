# SPDX-License-Identifier: Apache-2.0
"""Transactions end to end: with our client and frame by frame, against a real process."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar import Client, Consumer, ConsumerType, InitialPosition, Transaction
from magnetar.errors import BadTransactionStatus, MagnetarError, TimedOut, TransactionConflict
from magnetar.ids import EARLIEST_MESSAGE
from magnetar.wire import message
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.client_service import Service, run
from tests.conformance.client_service import service as service
from tests.conformance.raw import RawClient, Type
from tests.processes import StandaloneProcess


async def nothing_comes(consumer: Any) -> None:
    with pytest.raises(TimedOut):
        await consumer.receive(300)


@pytest.mark.feature("F-TXN-07")
def test_many_partitions_and_acknowledgements_count_at_once(service: Service) -> None:
    async def test() -> None:
        source, target = service.topic("in"), service.topic("out")
        service.create_partitions(target, 3)
        async with Client(service.url) as client:
            inputs = await client.subscribe(source, "s", consumer_type=ConsumerType.Shared)
            results = await client.subscribe(target, "s")
            sender = await client.create_producer(source)
            for number in range(6):
                await sender.send(b"in-%d" % number)
            producer = await client.create_producer(target)
            async with client.transaction() as txn:
                for number in range(6):
                    received = await inputs.receive(20_000)
                    await producer.send(b"out-%d" % number, txn=txn)
                    await inputs.acknowledge(received, txn=txn)
                await nothing_comes(results)
            got = {(await results.receive(20_000)).data() for _ in range(6)}
            assert got == {b"out-%d" % number for number in range(6)}
            await inputs.close()
            inputs = await client.subscribe(source, "s", consumer_type=ConsumerType.Shared)
            await nothing_comes(inputs)

    run(test())


@pytest.mark.feature("F-TXN-11", "F-TXN-12")
def test_aborted_messages_are_never_seen_and_block_nobody(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("aborted")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            await producer.send(b"before")
            txn = await client.new_transaction()
            await producer.send(b"never", txn=txn)
            await producer.send(b"after")
            assert (await consumer.receive(20_000)).data() == b"before"
            await nothing_comes(consumer)
            explained = service.admin("GET", f"{topic.replace('://', '/')}/subscription/s/explain")
            assert f"waiting for transaction {txn}" in str(explained)
            await txn.abort()
            assert (await consumer.receive(20_000)).data() == b"after"
            # Nothing but an aborted message is left: a reader knows that it has everything.
            txn = await client.new_transaction()
            await producer.send(b"never", txn=txn)
            await txn.abort()
            reader = await client.create_reader(topic, EARLIEST_MESSAGE)
            read = []
            while await reader.has_message_available():
                read.append((await reader.read_next(20_000)).data())
            assert read == [b"before", b"after"]

    run(test())


@pytest.mark.feature("F-TXN-02", "D-35")
def test_the_whole_interface_of_a_transaction(service: Service) -> None:
    """Begin with a time-out, send, acknowledge one by one and cumulatively, commit, abort, and what comes too late."""

    async def test() -> None:
        source, target = service.topic("api-in"), service.topic("api-out")
        async with Client(service.url) as client:
            single = await client.subscribe(source, "single", consumer_type=ConsumerType.Shared)
            ordered = await client.subscribe(source, "ordered")
            results = await client.subscribe(target, "s")
            sender = await client.create_producer(source)
            for number in range(3):
                await sender.send(b"%d" % number)
            producer = await client.create_producer(target)
            committed = await client.new_transaction(timeout_ms=60_000)
            # Nobody registers a topic or a subscription by hand: the client does, before the first use of each.
            assert (await producer.send(b"kept", txn=committed)).entry_id == 0
            await single.acknowledge(await single.receive(20_000), txn=committed)
            await ordered.receive(20_000)
            await ordered.acknowledge_cumulative(await ordered.receive(20_000), txn=committed)
            most, least = committed.ids
            path = f"transactionMetadata/{most}/{least}"
            shown = await asyncio.to_thread(admin, service, "GET", path)
            assert list(shown["producedPartitions"]) == [target]
            assert sorted(shown["ackedPartitions"][source]) == ["ordered", "single"]
            aborted = await client.new_transaction()
            await producer.send(b"lost", txn=aborted)
            await aborted.abort()
            await committed.commit()
            assert (await results.receive(20_000)).data() == b"kept"
            await nothing_comes(results)
            for over in (committed, aborted):
                with pytest.raises(MagnetarError):
                    await producer.send(b"late", txn=over)
            for name, left in (("single", {b"1", b"2"}), ("ordered", {b"2"})):
                await (single if name == "single" else ordered).close()
                consumer = await client.subscribe(source, name, consumer_type=ConsumerType.Shared)
                assert {(await consumer.receive(20_000)).data() for _ in left} == left

    run(test())


def metric(service: Service, name: str) -> list[float]:
    with urllib.request.urlopen(f"{service.web_url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{")]


async def left_open(client: Client, topic: str, timeout_ms: int) -> tuple[Consumer[bytes], Transaction]:
    """A message in a transaction, and one behind it that waits for its end."""
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    txn = await client.new_transaction(timeout_ms=timeout_ms)
    await producer.send(b"never", txn=txn)
    await producer.send(b"after")
    return consumer, txn


@pytest.mark.feature("F-PRB-22")
def test_a_transaction_that_nobody_ends_is_seen_and_its_time_out_frees_the_consumers(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("forgotten")
        async with Client(service.url) as client:
            consumer, _ = await left_open(client, topic, timeout_ms=8_000)
            await nothing_comes(consumer)
            assert sum(await asyncio.to_thread(metric, service, "pulsar_txn_active_count")) >= 1
            assert max(await asyncio.to_thread(metric, service, "magnetar_txn_oldest_seconds")) > 0
            assert (await consumer.receive(60_000)).data() == b"after"

    run(test())


@pytest.mark.feature("F-TXN-13")
def test_a_time_out_aborts_and_frees_the_consumers(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("slow")
        async with Client(service.url) as client:
            consumer, txn = await left_open(client, topic, timeout_ms=500)
            assert (await consumer.receive(20_000)).data() == b"after"
            with pytest.raises(BadTransactionStatus):
                await txn.commit()

    run(test())


@pytest.mark.feature("F-TXN-14")
def test_conflicting_acknowledgements_are_refused(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("conflict")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            await (await client.create_producer(topic)).send(b"m")
            received = await consumer.receive(20_000)
            one, other = await client.new_transaction(), await client.new_transaction()
            await consumer.acknowledge(received, txn=one)
            with pytest.raises(TransactionConflict):
                await consumer.acknowledge(received, txn=other)
            await one.commit()
            with pytest.raises(TransactionConflict):
                await consumer.acknowledge(received, txn=other)
            await other.abort()

    run(test())


def test_cumulative_acknowledgements_and_parts_of_batches(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("parts")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
            await asyncio.gather(*(producer.send(b"%d" % number) for number in range(6)))
            received = [await consumer.receive(20_000) for _ in range(6)]
            txn = await client.new_transaction()
            await consumer.acknowledge_cumulative(received[1], txn=txn)
            await txn.commit()
            txn = await client.new_transaction()
            await consumer.acknowledge(received[3], txn=txn)
            await txn.abort()
            txn = await client.new_transaction()
            await consumer.acknowledge(received[4], txn=txn)
            await txn.commit()
            await consumer.close()
            consumer = await client.subscribe(topic, "s")
            again = [(await consumer.receive(20_000)).data() for _ in range(3)]
            assert again == [b"2", b"3", b"5"]
            await nothing_comes(consumer)

    run(test())


@pytest.mark.feature("F-TXN-09", "F-TXN-14")
def test_a_cumulative_acknowledgement_excludes_others_and_is_nothing_after_an_abort(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("cumulative")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            for number in range(4):
                await producer.send(b"%d" % number)
            received = [await consumer.receive(20_000) for _ in range(4)]
            one, other = await client.new_transaction(), await client.new_transaction()
            await consumer.acknowledge_cumulative(received[2], txn=one)
            with pytest.raises(TransactionConflict):
                await consumer.acknowledge(received[1], txn=other)
            with pytest.raises(TransactionConflict):
                await consumer.acknowledge_cumulative(received[3], txn=other)
            await other.abort()
            await one.abort()
            with pytest.raises(BadTransactionStatus):
                await consumer.acknowledge_cumulative(received[2], txn=one)
            await consumer.close()
            consumer = await client.subscribe(topic, "s")
            again = [(await consumer.receive(20_000)).data() for _ in range(4)]
            assert again == [b"0", b"1", b"2", b"3"]

    run(test())


@pytest.mark.feature("F-TXN-09")
def test_what_a_dead_consumer_acknowledged_comes_back_only_after_an_abort(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("dead")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
            await (await client.create_producer(topic)).send(b"m")
            received = await consumer.receive(20_000)
            txn = await client.new_transaction()
            await consumer.acknowledge(received, txn=txn)
            await consumer.close()
            consumer = await client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
            await nothing_comes(consumer)
            await txn.abort()
            assert (await consumer.receive(20_000)).data() == b"m"

    run(test())


@pytest.mark.feature("F-TXN-03", "F-TXN-05")
def test_transactions_spread_over_sixteen_coordinators(service: Service) -> None:
    async def test() -> None:
        async with Client(service.url) as client:
            opened = [await client.new_transaction() for _ in range(32)]
            assert sorted({txn.ids[0] for txn in opened}) == list(range(16))
            for coordinator in range(16):
                of_one = [txn.ids[1] for txn in opened if txn.ids[0] == coordinator]
                assert of_one == sorted(set(of_one))
            for txn in opened:
                await txn.abort()

    run(test())


# --- administration -----------------------------------------------------------------------------------


def admin(service: Service, method: str, path: str) -> Any:
    request = urllib.request.Request(f"{service.web_url}/admin/v3/transactions/{path}", method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


@pytest.mark.feature("F-TXN-03", "F-TXN-16")
def test_administration_shows_a_transaction_and_aborts_it(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("shown")
        bare = topic.removeprefix("persistent://")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            await producer.send(b"in")
            received = await consumer.receive(20_000)
            txn = await client.new_transaction()
            most, least = txn.ids
            await producer.send(b"never", txn=txn)
            await consumer.acknowledge(received, txn=txn)

            async def ask(method: str, path: str) -> Any:
                return await asyncio.to_thread(admin, service, method, path)

            shown = await ask("GET", f"transactionMetadata/{most}/{least}")
            assert (shown["txnId"], shown["status"]) == (str(txn), "OPEN")
            assert list(shown["producedPartitions"]) == [topic]
            assert list(shown["ackedPartitions"][topic]) == ["s"]
            assert [each["id"] for each in await ask("GET", "coordinators")] == list(range(16))
            stats = await ask("GET", f"coordinatorStats?coordinatorId={most}")
            assert stats["ongoingTxnSize"] >= 1
            assert str(txn) in await ask("GET", "slowTransactions/0")
            assert (await ask("GET", f"transactionBufferStats/{bare}"))["ongoingTxnSize"] == 1
            assert (await ask("GET", f"pendingAckStats/{bare}/s"))["ongoingTxnSize"] == 1
            place = received.message_id()
            where = f"{bare}/s/{place.ledger_id}/{place.entry_id}"
            assert (await ask("GET", f"positionStatsInPendingAck/{where}"))["state"] == "PendingAck"
            in_buffer = await ask("GET", f"transactionInBufferStats/{bare}/{most}/{least}")
            assert in_buffer["startPosition"] is not None
            log = await ask("GET", f"coordinatorInternalStats/{most}")
            assert log["transactionLogStats"]["managedLedgerName"].endswith(f"__transaction_log_{most}")
            assert "pendingAckLogStats" in await ask("GET", f"pendingAckInternalStats/{bare}/s")
            await ask("GET", f"transactionInPendingAckStats/{bare}/s/{most}/{least}")
            await ask("GET", f"transactionBufferInternalStats/{bare}")
            await ask("POST", f"abortTransaction/{most}/{least}")
            with pytest.raises(BadTransactionStatus):
                await txn.commit()
            shown = await ask("GET", f"transactionMetadata/{most}/{least}")
            assert shown["status"] in ("ABORTING", "ABORTED")

    run(test())


# --- frame by frame -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def raw(service: Service) -> Iterator[RawClient]:
    with RawClient(int(service.url.rpartition(":")[2])) as client:
        yield client


def ask(raw: RawClient, kind: int, request: Any, answer: str) -> Any:
    request.request_id = raw.next_request()
    raw.send(kind, request)  # type: ignore[arg-type]
    return raw.expect(answer)


def begin(raw: RawClient, ttl_ms: int = 60_000) -> Any:
    answer = ask(raw, Type.NEW_TXN, pb.CommandNewTxn(tc_id=0, txn_ttl_millis=ttl_ms), "newTxnResponse")
    assert not answer.HasField("error")
    return answer


def end(raw: RawClient, txn: Any, action: int) -> Any:
    request = pb.CommandEndTxn(
        txnid_most_bits=txn.txnid_most_bits,
        txnid_least_bits=txn.txnid_least_bits,
        txn_action=action,  # type: ignore[arg-type]
    )
    return ask(raw, Type.END_TXN, request, "endTxnResponse")


def send(raw: RawClient, sequence_id: int, data: bytes, txn: Any = None) -> None:
    send = pb.CommandSend(producer_id=1, sequence_id=sequence_id)
    metadata = pb.MessageMetadata(producer_name="raw", sequence_id=sequence_id, publish_time=1)
    if txn is not None:
        for part in (send, metadata):
            part.txnid_most_bits, part.txnid_least_bits = txn.txnid_most_bits, txn.txnid_least_bits
    body = b"".join(message.join(metadata.SerializeToString(), data))
    command = pb.BaseCommand(type=Type.SEND, send=send).SerializeToString()
    sizes = (4 + len(command) + len(body)).to_bytes(4, "big") + len(command).to_bytes(4, "big")
    raw.send_bytes(sizes + command + body)


def test_every_answer_names_its_transaction(raw: RawClient) -> None:
    connect = pb.CommandTcClientConnectRequest(tc_id=0)
    assert not ask(raw, Type.TC_CLIENT_CONNECT_REQUEST, connect, "tcClientConnectResponse").HasField("error")
    connect.tc_id = 99
    refused = ask(raw, Type.TC_CLIENT_CONNECT_REQUEST, connect, "tcClientConnectResponse")
    assert refused.error == pb.TransactionCoordinatorNotFound
    txn = begin(raw)
    assert txn.txnid_most_bits == 0
    assert txn.txnid_least_bits > 0
    add = pb.CommandAddPartitionToTxn(
        txnid_most_bits=0, txnid_least_bits=txn.txnid_least_bits, partitions=["persistent://public/default/raw"]
    )
    answer = ask(raw, Type.ADD_PARTITION_TO_TXN, add, "addPartitionToTxnResponse")
    assert (answer.txnid_least_bits, answer.HasField("error")) == (txn.txnid_least_bits, False)
    assert not end(raw, txn, pb.COMMIT).HasField("error")
    # Asked again: the same answer; the other action, and what comes late: refused.
    assert not end(raw, txn, pb.COMMIT).HasField("error")
    assert end(raw, txn, pb.ABORT).error == pb.InvalidTxnStatus
    assert ask(raw, Type.ADD_PARTITION_TO_TXN, add, "addPartitionToTxnResponse").error == pb.InvalidTxnStatus
    add.txnid_least_bits = 10**9
    assert ask(raw, Type.ADD_PARTITION_TO_TXN, add, "addPartitionToTxnResponse").error == pb.TransactionNotFound


@pytest.mark.feature("F-PROD-45", "D-06", "D-35")
def test_a_send_with_two_times_64_bits_is_stored_and_hidden_until_its_commit(raw: RawClient, service: Service) -> None:
    """The partition was never registered by the client: the topic's owner does that itself."""
    topic = service.topic("hidden")
    assert ask(raw, Type.PRODUCER, pb.CommandProducer(topic=topic, producer_id=1), "producer_success").producer_ready
    txn = begin(raw)
    assert txn.HasField("txnid_most_bits")
    assert max(txn.txnid_most_bits, txn.txnid_least_bits) < 2**64
    send(raw, 0, b"in", txn)
    assert raw.expect("send_receipt").sequence_id == 0
    path = topic.replace("://", "/")
    assert service.admin("GET", f"{path}/stats")["msgInCounter"] == 1

    async def test() -> None:
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
            await nothing_comes(consumer)
            assert not (await asyncio.to_thread(end, raw, txn, pb.COMMIT)).HasField("error")
            assert (await consumer.receive(20_000)).data() == b"in"

    run(test())
    ask(raw, Type.CLOSE_PRODUCER, pb.CommandCloseProducer(producer_id=1), "success")


def test_a_message_that_waits_for_its_coordinator_is_answered_in_its_turn(raw: RawClient, service: Service) -> None:
    topic = service.topic("turn")
    opened = ask(raw, Type.PRODUCER, pb.CommandProducer(topic=topic, producer_id=1), "producer_success")
    assert opened.producer_ready
    txn, over = begin(raw), begin(raw)
    assert not end(raw, over, pb.ABORT).HasField("error")
    send(raw, 0, b"in", txn)
    send(raw, 1, b"plain")
    send(raw, 2, b"late", over)
    send(raw, 3, b"in", txn)
    answers = []
    for _ in range(4):
        command, _ = raw.receive()
        receipt = command.send_receipt if command.HasField("send_receipt") else command.send_error
        answers.append((receipt.sequence_id, command.HasField("send_receipt")))
    assert [number for number, is_stored in answers if is_stored] == [0, 1, 3]
    assert (2, False) in answers
    assert not end(raw, txn, pb.COMMIT).HasField("error")
    closed = ask(raw, Type.CLOSE_PRODUCER, pb.CommandCloseProducer(producer_id=1), "success")
    assert closed is not None


def test_a_broker_without_transactions_says_so(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path) as process, RawClient(process.port) as raw:
        answer = ask(raw, Type.NEW_TXN, pb.CommandNewTxn(tc_id=0), "newTxnResponse")
        assert answer.error == pb.NotAllowedError
        assert "transactionCoordinatorEnabled" in answer.message

        async def test() -> None:
            async with Client(process.service_url) as client:
                with pytest.raises(MagnetarError):
                    await client.new_transaction()

        run(test())
