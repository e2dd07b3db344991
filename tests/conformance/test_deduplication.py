# SPDX-License-Identifier: Apache-2.0
"""Deduplication with the official client and over raw sockets: each sequence id is stored once, whatever dies."""

import threading
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw_client import RawClient, Type, body
from tests.conftest import Eventually
from tests.processes import StandaloneProcess

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
DEDUPLICATED = {"brokerDeduplicationEnabled": "true", "brokerDeduplicationEntriesInterval": "50"}
NOWHERE = 2**64 - 1


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess, None, None]:
    directory: Path = tmp_path_factory.mktemp("deduplication")
    with StandaloneProcess(directory, environment=DEDUPLICATED) as process:
        yield process


def read_all(client: pulsar.Client, topic: str) -> list[bytes]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(10_000).data())
    reader.close()
    return found


@pytest.mark.feature("F-PROD-26", "F-PROD-27")
def test_the_same_sequence_id_is_stored_once_and_the_producer_learns_where_it_stands(
    standalone: StandaloneProcess,
) -> None:
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    producer = client.create_producer("once", producer_name="p", batching_enabled=False)
    assert producer.last_sequence_id() == -1
    for sequence_id in (3, 4, 3, 4, 5):
        producer.send(b"m%d" % sequence_id, sequence_id=sequence_id)
    assert read_all(client, "once") == [b"m3", b"m4", b"m5"]
    producer.close()
    again = client.create_producer("once", producer_name="p", batching_enabled=False)
    assert again.last_sequence_id() == 5
    again.send(b"m6")
    assert read_all(client, "once")[-1] == b"m6"
    client.close()


def test_what_is_stored_is_acknowledged_without_a_place_and_what_straddles_is_refused(
    standalone: StandaloneProcess,
) -> None:
    with RawClient(standalone.port) as client:
        client.open_producer("straddle", producer_name="p")

        def send(lowest: int, highest: int) -> pb.BaseCommand | None:
            client.send(
                sequence_id=lowest,
                highest_sequence_id=highest,
                num_messages=highest - lowest + 1,
                data=body(sequence_id=lowest, highest_sequence_id=highest),
            )
            return client.next()

        stored = send(0, 5)
        assert stored is not None
        assert (stored.send_receipt.message_id.entryId, stored.send_receipt.highest_sequence_id) == (0, 5)
        for lowest, highest in ((0, 5), (2, 5), (0, 1)):
            again = send(lowest, highest)
            assert again is not None
            assert again.send_receipt.message_id.ledgerId == NOWHERE
            assert (again.send_receipt.sequence_id, again.send_receipt.highest_sequence_id) == (lowest, highest)
        refused = send(4, 8)
        assert refused is not None
        assert (refused.type, refused.send_error.error) == (Type.SEND_ERROR, pb.NotAllowedError)
        stored = send(6, 8)
        assert stored is not None
        assert stored.send_receipt.message_id.entryId == 1


def test_receipts_of_duplicates_do_not_overtake(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        client.open_producer("overtake", producer_name="p")
        sequence_ids = [0, 1, 2, 1, 3, 2, 4, 0, 5]
        for sequence_id in sequence_ids:
            client.send(sequence_id=sequence_id)
        receipts = [client.expect(Type.SEND_RECEIPT).send_receipt for _ in sequence_ids]
        assert [receipt.sequence_id for receipt in receipts] == sequence_ids
        entries = [receipt.message_id.entryId for receipt in receipts if receipt.message_id.ledgerId != NOWHERE]
        assert entries == [0, 1, 2, 3, 4, 5]


def test_a_client_that_comes_back_and_sends_again_meets_its_own_pending_messages(
    standalone: StandaloneProcess,
) -> None:
    with RawClient(standalone.port) as client:
        client.open_producer("come-back", producer_name="p")
        for sequence_id in range(200):
            client.send(sequence_id=sequence_id)
    with RawClient(standalone.port) as client:
        while True:
            answer = client.open_producer("come-back", producer_name="p")
            if answer.type == Type.PRODUCER_SUCCESS:
                break
        last = answer.producer_success.last_sequence_id
        for sequence_id in range(200):
            client.send(sequence_id=sequence_id)
        receipts = [client.expect(Type.SEND_RECEIPT).send_receipt for _ in range(200)]
    again = [receipt.sequence_id for receipt in receipts if receipt.message_id.ledgerId == NOWHERE]
    assert again == list(range(last + 1))
    viewer = pulsar.Client(standalone.service_url, logger=QUIET)
    assert len(read_all(viewer, "come-back")) == 200
    viewer.close()


@pytest.mark.feature("F-PROD-28", "F-PROD-29", "F-PROD-30", "F-PROD-31")
def test_every_message_is_stored_exactly_once_over_kills(tmp_path: Path, eventually: Eventually) -> None:
    acknowledged: list[int] = []
    with StandaloneProcess(tmp_path, environment=DEDUPLICATED) as standalone:
        client = pulsar.Client(standalone.service_url, operation_timeout_seconds=60, logger=QUIET)
        # Without a subscription that needs them, what is behind the snapshot may be trimmed.
        keeper = client.subscribe("kills", "keeper")
        producer = client.create_producer(
            "kills", producer_name="p", send_timeout_millis=0, max_pending_messages=200, block_if_queue_full=True
        )
        stop = threading.Event()
        sent: list[int] = []

        def publish() -> None:
            while not stop.is_set():
                number = len(sent)
                sent.append(number)
                producer.send_async(
                    b"%d" % number,
                    lambda result, _, number=number: (
                        acknowledged.append(number) if result == pulsar.Result.Ok else None
                    ),
                )
                if number % 50 == 0:
                    stop.wait(0.002)

        publishing = threading.Thread(target=publish)
        publishing.start()
        for kills in range(1, 4):
            eventually(lambda wanted=kills * 300: len(acknowledged) >= wanted)
            standalone.kill()
            standalone.start()
        eventually(lambda: len(acknowledged) >= 1_200)
        stop.set()
        publishing.join()
        producer.flush()
        found = [int(data) for data in read_all(client, "kills")]
        keeper.close()
        client.close()
    assert found == sent, "each once, in order"
    assert sorted(acknowledged) == sent


@pytest.mark.feature("F-PROD-38", "F-PROD-44")
def test_unloading_under_load_loses_nothing_and_repeats_nothing(
    standalone: StandaloneProcess, eventually: Eventually
) -> None:
    client = pulsar.Client(standalone.service_url, operation_timeout_seconds=60, logger=QUIET)
    keeper = client.subscribe("unloaded", "keeper")
    producer = client.create_producer(
        "unloaded", producer_name="p", send_timeout_millis=0, max_pending_messages=500, block_if_queue_full=True
    )
    results: list[pulsar.Result] = []
    unloads = 0
    for number in range(6_000):
        producer.send_async(b"%d" % number, lambda result, _: results.append(result))
        if number % 1_500 == 1_000:
            eventually(lambda wanted=number - 500: len(results) >= wanted)
            request = urllib.request.Request(
                f"{standalone.web_url}/admin/v2/namespaces/public/default/unload", method="PUT"
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert answer.status in (200, 204)
            unloads += 1
    producer.flush()
    assert unloads == 4
    assert results == [pulsar.Result.Ok] * 6_000
    assert [int(data) for data in read_all(client, "unloaded")] == list(range(6_000))
    keeper.close()
    client.close()
