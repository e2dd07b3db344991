# SPDX-License-Identifier: Apache-2.0
"""Shadow topics as the official client meets them: all in order, acks of their own, a source that never knows."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar import Client
from magnetar.errors import TimedOut
from magnetar.ids import EARLIEST_MESSAGE
from tests.conformance.exchanges import QUIET
from tests.processes import StandaloneProcess

EARLIEST = pulsar.InitialPosition.Earliest


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    directory: Path = tmp_path_factory.mktemp("shadows")
    settings = directory / "broker.conf"
    # Ledgers are short, so that shadows follow from one to the next.
    settings.write_text(
        "managedLedgerMaxEntriesPerLedger=25\nmanagedLedgerMinLedgerRolloverTimeMinutes=0\n"
        "transactionCoordinatorEnabled=true\n"
    )
    with StandaloneProcess(directory, "--config", str(settings)) as process:
        yield process


def _ask(standalone: StandaloneProcess, verb: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{standalone.web_url}/admin/v2/persistent/public/{path}", data, method=verb)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def _name(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def _shadow(standalone: StandaloneProcess, source: str, shadow: str) -> None:
    """As pulsar-admin does: make the shadow, then name it at its source."""
    _ask(standalone, "PUT", f"default/{shadow}", {"PULSAR.SHADOW_SOURCE": _name(source)})
    _ask(standalone, "PUT", f"default/{source}/shadowTopics", [_name(shadow)])


def _send(client: pulsar.Client, topic: str, numbers: range) -> list[pulsar.MessageId]:
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"%d" % number) for number in numbers]
    producer.close()
    return ids


def _receive(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(timeout_millis=30_000) for _ in range(count)]


@pytest.mark.feature("B-15", "F-DISP-17", "D-21")
def test_a_shadow_shows_everything_in_order_with_the_same_ids(
    standalone: StandaloneProcess, client: pulsar.Client
) -> None:
    # Whatever trims the source trims the shadow: somebody must still need it.
    client.subscribe("source", "keeps", initial_position=EARLIEST).close()
    ids = _send(client, "source", range(40))
    _shadow(standalone, "source", "shadow")
    assert _ask(standalone, "GET", "default/source/shadowTopics") == [_name("shadow")]
    consumer = client.subscribe("shadow", "s", initial_position=EARLIEST)
    first = _receive(consumer, 40)
    assert [int(message.data()) for message in first] == list(range(40)), "what was there before the shadow"
    ids += _send(client, "source", range(40, 90))
    seen = first + _receive(consumer, 50)
    assert [int(message.data()) for message in seen] == list(range(90)), "and what comes after it, ledger by ledger"
    places = [(each.message_id().ledger_id(), each.message_id().entry_id()) for each in seen]
    assert places == [(each.ledger_id(), each.entry_id()) for each in ids]
    assert len({ledger for ledger, _ in places}) > 2


@pytest.mark.feature("B-15", "F-DISP-17")
def test_acks_of_a_shadow_are_its_own_and_outlive_the_broker(
    standalone: StandaloneProcess, eventually: Callable[..., Any]
) -> None:
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    client.subscribe("kept-source", "s", initial_position=EARLIEST).close()
    _send(client, "kept-source", range(30))
    _shadow(standalone, "kept-source", "kept-shadow")
    consumer = client.subscribe("kept-shadow", "s", initial_position=EARLIEST)
    messages = _receive(consumer, 30)
    consumer.acknowledge_cumulative(messages[19])
    consumer.acknowledge(messages[24])

    def backlog(topic: str) -> int:
        found: int = _ask(standalone, "GET", f"default/{topic}/stats")["subscriptions"]["s"]["backlogMessages"]
        return found

    eventually(lambda: backlog("kept-shadow") == 9)
    assert backlog("kept-source") == 30
    source = _ask(standalone, "GET", "default/kept-source/internalStats")
    assert list(source["cursors"]) == ["s"], "no cursor of the shadow holds the source back"
    client.close()
    standalone.stop()
    standalone.start()
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    try:
        consumer = client.subscribe("kept-shadow", "s")
        _send(client, "kept-source", range(30, 40))
        left = [int(message.data()) for message in _receive(consumer, 19)]
        assert left == [*range(20, 24), *range(25, 40)]
        consumer.close()
        _ask(standalone, "DELETE", "default/kept-shadow")
        reader = client.create_reader("kept-source", pulsar.MessageId.earliest)
        assert [int(reader.read_next(timeout_millis=30_000).data()) for _ in range(40)] == list(range(40))
    finally:
        client.close()


@pytest.mark.feature("B-15", "F-TXN-07")
def test_a_shadow_shows_of_a_transaction_what_its_source_shows(standalone: StandaloneProcess) -> None:
    async def test() -> None:
        async with Client(standalone.service_url) as client:
            await (await client.subscribe("txn-source", "keeps")).close()
            producer = await client.create_producer("txn-source")
            await asyncio.to_thread(_shadow, standalone, "txn-source", "txn-shadow")
            consumer = await client.subscribe("txn-shadow", "s")
            await producer.send(b"before")
            assert (await consumer.receive(30_000)).data() == b"before"
            kept, lost = await client.new_transaction(), await client.new_transaction()
            await producer.send(b"lost", txn=lost)
            await producer.send(b"kept", txn=kept)
            await producer.send(b"after")
            with pytest.raises(TimedOut):
                await consumer.receive(500)
            await lost.abort()
            await kept.commit()
            # A word behind the markers, so that the bookies know of them.
            await producer.send(b"last")
            came = [(await consumer.receive(30_000)).data() for _ in range(3)]
            assert came == [b"kept", b"after", b"last"]
            # From the beginning again: what was looked at from a later place on is looked at once more.
            reader = await client.create_reader("txn-shadow", EARLIEST_MESSAGE)
            read = []
            while await reader.has_message_available():
                read.append((await reader.read_next(30_000)).data())
            assert read == [b"before", b"kept", b"after", b"last"]

    asyncio.run(test())


@pytest.mark.feature("B-15")
def test_nothing_is_sent_to_a_shadow_and_strangers_are_not_shown(
    standalone: StandaloneProcess, client: pulsar.Client
) -> None:
    client.subscribe("own-source", "keeps", initial_position=EARLIEST).close()
    _send(client, "own-source", range(3))
    _shadow(standalone, "own-source", "own-shadow")
    with pytest.raises(pulsar.NotAllowedError):
        client.create_producer("own-shadow")
    for verb in ("terminate", "truncate"):
        with pytest.raises(urllib.error.HTTPError):
            _ask(standalone, "POST" if verb == "terminate" else "DELETE", f"default/own-shadow/{verb}")
    reader = client.create_reader("own-source", pulsar.MessageId.earliest)
    assert [int(reader.read_next(timeout_millis=30_000).data()) for _ in range(3)] == [0, 1, 2]
    namespace = urllib.request.Request(f"{standalone.web_url}/admin/v2/namespaces/public/elsewhere", method="PUT")
    urllib.request.urlopen(namespace, timeout=30).close()
    _ask(standalone, "PUT", "elsewhere/stranger", {"PULSAR.SHADOW_SOURCE": _name("own-source")})
    stranger = "persistent://public/elsewhere/stranger"
    impatient = pulsar.Client(standalone.service_url, operation_timeout_seconds=1, logger=QUIET)
    with pytest.raises(pulsar.PulsarException):
        impatient.create_reader(stranger, pulsar.MessageId.earliest)
    impatient.close()
    _ask(standalone, "PUT", "default/own-source/shadowTopics", [stranger])
    reader = client.create_reader(stranger, pulsar.MessageId.earliest)
    assert [int(reader.read_next(timeout_millis=30_000).data()) for _ in range(3)] == [0, 1, 2]


@pytest.mark.feature("B-15")
def test_partitions_are_shown_one_by_one(standalone: StandaloneProcess, client: pulsar.Client) -> None:
    _ask(standalone, "PUT", "default/wide/partitions", 2)
    body = {"partitions": 2, "properties": {"PULSAR.SHADOW_SOURCE": _name("wide")}}
    request = urllib.request.Request(
        f"{standalone.web_url}/admin/v2/persistent/public/default/wide-shadow/partitions",
        json.dumps(body).encode(),
        {"Content-Type": "application/vnd.partitioned-topic-metadata+json"},
        method="PUT",
    )
    urllib.request.urlopen(request, timeout=30).close()
    _ask(standalone, "PUT", "default/wide/shadowTopics", [_name("wide-shadow")])
    for index in range(2):
        _send(client, f"wide-partition-{index}", range(10 * index, 10 * index + 10))
    consumer = client.subscribe("wide-shadow", "s", initial_position=EARLIEST)
    assert sorted(int(message.data()) for message in _receive(consumer, 20)) == list(range(20))
