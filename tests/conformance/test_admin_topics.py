# SPDX-License-Identifier: Apache-2.0
"""Topics, their statistics, subscriptions, messages and policies over HTTP, with messages of the official client."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import httpx
import pulsar
import pytest

from magnetar.admin.policy_table import TOPIC_POLICIES
from tests.conformance.test_admin_namespaces import value_of
from tests.processes import StandaloneProcess

_NUMBERS = count()
_NAMES_OF_NAMESPACES = {"deduplicationEnabled": "deduplication"}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("admin")) as running:
        yield running


@pytest.fixture(scope="module")
def http(standalone: StandaloneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{standalone.web_url}/admin/v2", timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def client(standalone: StandaloneProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(standalone.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    return f"topic-{next(_NUMBERS)}"


@pytest.fixture
def topic(name: str) -> str:
    return f"/persistent/public/default/{name}"


@pytest.fixture
def filled(client: pulsar.Client, name: str) -> list[pulsar.MessageId]:
    """Ten messages, one entry each."""
    producer = client.create_producer(name, batching_enabled=False, producer_name=f"p-{name}")
    ids = [producer.send(b"m%d" % n, properties={"n": str(n)}, partition_key="k") for n in range(10)]
    producer.close()
    return ids


@pytest.fixture
def backlog(http: httpx.Client, topic: str) -> Callable[[str], int]:
    def of(subscription: str) -> int:
        found: int = http.get(f"{topic}/stats").json()["subscriptions"][subscription]["msgBacklog"]
        return found

    return of


@pytest.mark.feature("F-TOP-17", "F-TOP-18")
def test_a_topic_is_made_listed_and_deleted(http: httpx.Client, name: str, topic: str) -> None:
    assert http.put(topic, json={"owner": "me"}).status_code == 204
    assert http.put(topic).status_code == 409
    assert http.put(f"{topic}/partitions", json=2).status_code == 409
    assert f"persistent://public/default/{name}" in http.get("/persistent/public/default").json()
    assert http.put(f"{topic}/properties", json={"more": "1"}).status_code == 204
    assert http.get(f"{topic}/properties").json() == {"owner": "me", "more": "1"}
    assert http.delete(f"{topic}/properties?key=owner").status_code == 204
    assert http.get(f"{topic}/properties").json() == {"more": "1"}
    assert http.delete(topic).status_code == 204
    assert http.delete(topic).status_code == 404


@pytest.mark.feature("F-TOP-09", "F-TOP-10")
@pytest.mark.parametrize("body", [b"4", b'"4"', b'{"partitions":4,"properties":{"a":"b"}}'])
def test_partitions_are_made_counted_and_grown(http: httpx.Client, topic: str, body: bytes) -> None:
    assert http.put(f"{topic}/partitions", content=body).status_code == 204
    assert http.put(f"{topic}/partitions", content=body).status_code == 409
    assert http.get(f"{topic}/partitions").json()["partitions"] == 4
    assert http.post(f"{topic}/partitions", json=3).status_code == 422
    assert http.post(f"{topic}/partitions", json=6).status_code == 204
    assert http.get(f"{topic}/partitions").json()["partitions"] == 6
    assert http.delete(topic).status_code == 409
    assert http.delete(f"{topic}/partitions").status_code == 204
    assert http.get(f"{topic}/partitions").status_code == 404


@pytest.mark.feature("F-MET-01")
def test_stats_tell_of_publishers_and_consumers(
    http: httpx.Client, client: pulsar.Client, name: str, topic: str
) -> None:
    consumer = client.subscribe(name, "s", consumer_type=pulsar.ConsumerType.Shared, consumer_name="c")
    producer = client.create_producer(
        name, producer_name=f"p-{name}", batching_enabled=True, batching_max_messages=5, properties={"a": "b"}
    )
    for n in range(5):
        producer.send_async(b"m%d" % n, lambda *_: None)
    producer.flush()
    for _ in range(5):
        consumer.receive(10_000)
    stats = http.get(f"{topic}/stats").json()
    assert (stats["msgInCounter"], stats["msgOutCounter"]) == (5, 5)
    assert stats["storageSize"] > 0
    (publisher,) = stats["publishers"]
    assert (publisher["producerName"], publisher["metadata"]) == (f"p-{name}", {"a": "b"})
    assert publisher["address"].startswith("/127.0.0.1:")
    subscription = stats["subscriptions"]["s"]
    assert (subscription["type"], subscription["unackedMessages"]) == ("Shared", 5)
    # Entries as upstream counts them, and messages exactly.
    assert subscription["msgBacklog"] <= subscription["backlogMessages"] == 5
    assert subscription["consumers"][0]["consumerName"] == "c"
    assert http.delete(topic).status_code == 412
    assert http.delete(f"{topic}/subscription/s").status_code == 412
    producer.close()
    consumer.close()


@pytest.mark.feature("F-MET-02", "F-TOP-15")
def test_internal_stats_show_ledgers_and_cursors(http: httpx.Client, topic: str, filled: list[Any]) -> None:
    assert http.put(f"{topic}/subscription/s", json="earliest").status_code == 204
    stats = http.get(f"{topic}/internalStats").json()
    assert stats["numberOfEntries"] == stats["currentLedgerEntries"] == 10
    assert stats["state"] == "LedgerOpened"
    assert stats["ledgers"][-1]["entries"] == 0
    assert stats["lastConfirmedEntry"] == f"{filled[-1].ledger_id()}:{filled[-1].entry_id()}"
    assert stats["cursors"]["s"]["markDeletePosition"].endswith(":-1")


def test_partitioned_stats_add_up(http: httpx.Client, client: pulsar.Client, name: str, topic: str) -> None:
    http.put(f"{topic}/partitions", json=3).raise_for_status()
    http.put(f"{topic}/subscription/s", json="earliest").raise_for_status()
    producer = client.create_producer(name, batching_enabled=False)
    for n in range(9):
        producer.send(b"m%d" % n)
    stats = http.get(f"{topic}/partitioned-stats").json()
    assert stats["msgInCounter"] == 9
    assert stats["subscriptions"]["s"]["msgBacklog"] == 9
    assert len(stats["partitions"]) == stats["metadata"]["partitions"] == 3
    assert http.get(f"{topic}/partitioned-stats?perPartition=false").json()["partitions"] == {}
    assert http.get(f"{topic}/stats").status_code == 404
    producer.close()


@pytest.mark.usefixtures("filled")
def test_a_backlog_is_skipped_and_comes_back(http: httpx.Client, topic: str, backlog: Callable[[str], int]) -> None:
    path = f"{topic}/subscription/s"
    assert http.put(path, json="earliest").status_code == 204
    assert http.put(path, json="earliest").status_code == 409
    assert http.post(f"{path}/skip/3").status_code == 204
    assert backlog("s") == 7
    assert http.post(f"{path}/skip_all").status_code == 204
    assert backlog("s") == 0
    assert http.post(f"{path}/resetcursor/0").status_code == 204
    assert backlog("s") == 10
    assert http.post(f"{path}/expireMessages/0").status_code == 204
    assert backlog("s") == 0
    assert http.delete(path).status_code == 204
    assert http.delete(path).status_code == 404


def test_consumers_stay_while_their_backlog_is_skipped(
    http: httpx.Client, client: pulsar.Client, name: str, topic: str, backlog: Callable[[str], int]
) -> None:
    consumer = client.subscribe(name, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(name, batching_enabled=False)
    for n in range(6):
        producer.send(b"old%d" % n)
    held = [consumer.receive(10_000) for _ in range(2)]
    assert http.post(f"{topic}/subscription/s/skip_all").status_code == 204
    assert backlog("s") == 0
    producer.send(b"new")
    received = [consumer.receive(10_000).data() for _ in range(5)]
    # What was on its way arrives once, and delivery goes on behind it.
    assert received == [b"old2", b"old3", b"old4", b"old5", b"new"]
    for message in held:
        consumer.acknowledge(message)
    producer.close()
    consumer.close()


def test_a_cursor_is_reset_to_a_message(
    http: httpx.Client, topic: str, filled: list[Any], backlog: Callable[[str], int]
) -> None:
    http.put(f"{topic}/subscription/s").raise_for_status()
    assert backlog("s") == 0
    fifth = {"ledgerId": filled[5].ledger_id(), "entryId": filled[5].entry_id()}
    assert http.post(f"{topic}/subscription/s/resetcursor", json=fifth).status_code == 204
    assert backlog("s") == 5
    assert http.post(f"{topic}/subscription/s/resetcursor", json={**fifth, "isExcluded": True}).status_code == 204
    assert backlog("s") == 4
    analysed = http.post(f"{topic}/subscription/s/analyzeBacklog").json()
    assert (analysed["entries"], analysed["messages"], analysed["aborted"]) == (4, 4, False)


def test_messages_are_peeked_examined_and_read_by_id(http: httpx.Client, topic: str, filled: list[Any]) -> None:
    http.put(f"{topic}/subscription/s", json="earliest").raise_for_status()
    third = http.get(f"{topic}/subscription/s/position/3")
    assert (third.content, third.headers["X-Pulsar-PROPERTY"]) == (b"m2", '{"n":"2"}')
    assert third.headers["X-Pulsar-partition-key"] == "k"
    assert http.get(f"{topic}/subscription/s/position/11").status_code == 404
    assert http.get(f"{topic}/examinemessage?initialPosition=latest&messagePosition=1").content == b"m9"
    assert http.get(f"{topic}/examinemessage?initialPosition=earliest&messagePosition=2").content == b"m1"
    ledger = filled[0].ledger_id()
    assert http.get(f"{topic}/ledger/{ledger}/entry/4").content == b"m4"
    assert http.get(f"{topic}/ledger/{ledger}/entry/400").status_code == 404
    assert http.get(f"{topic}/lastMessageId").json()["entryId"] == filled[-1].entry_id()
    assert http.get(f"{topic}/messageid/0").json()["entryId"] == 0
    assert http.get(f"{topic}/getMessageIdByIndex?index=7").json()["entryId"] == filled[7].entry_id()
    assert http.get(f"{topic}/getMessageIdByIndex?index=10").status_code == 404


def test_a_ledger_of_another_topic_is_not_read(http: httpx.Client, topic: str, filled: list[Any]) -> None:
    """F147: within one tenant neither."""
    other = f"{topic}-other"
    http.put(other).raise_for_status()
    assert http.get(f"{other}/ledger/{filled[0].ledger_id()}/entry/0").status_code == 404


def test_a_producer_name_cannot_add_headers(http: httpx.Client, client: pulsar.Client, name: str, topic: str) -> None:
    producer = client.create_producer(name, producer_name="p\r\nX-Evil: 1", batching_enabled=False)
    producer.send(b"m")
    answer = http.get(f"{topic}/examinemessage?initialPosition=latest&messagePosition=1")
    assert (answer.content, "X-Evil" in answer.headers) == (b"m", False)
    producer.close()


def test_a_terminated_topic_takes_no_more(
    http: httpx.Client, client: pulsar.Client, name: str, topic: str, filled: list[Any]
) -> None:
    last = {"ledgerId": filled[-1].ledger_id(), "entryId": filled[-1].entry_id()}
    ended = http.post(f"{topic}/terminate").json()
    assert {key: ended[key] for key in last} == last
    assert http.post(f"{topic}/terminate").json() == ended
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(name)


@pytest.mark.usefixtures("filled")
def test_an_unloaded_topic_comes_back_with_everything(http: httpx.Client, topic: str) -> None:
    http.put(f"{topic}/subscription/s", json="earliest").raise_for_status()
    assert http.put(f"{topic}/unload").status_code == 204
    assert http.get(f"{topic}/stats").json()["subscriptions"]["s"]["msgBacklog"] == 10


_LISTS = {"replication": ["standalone"], "shadowTopics": ["persistent://public/default/shadow"]}


@pytest.mark.feature("B-01")
@pytest.mark.parametrize("policy", TOPIC_POLICIES)
def test_each_policy_of_a_topic_is_read_as_it_was_set(http: httpx.Client, topic: str, policy: str) -> None:
    http.put(topic).raise_for_status()
    row = TOPIC_POLICIES[policy]
    path = f"{topic}/{policy}"
    before = http.get(path)
    assert before.status_code == row.unset_status
    value = _LISTS.get(policy) or value_of(_NAMES_OF_NAMESPACES.get(policy, policy))
    answer = http.request(row.verb, path, json=value)
    assert answer.status_code == 204, answer.text
    assert http.get(path).json() == value
    assert http.get(f"{path}?applied=true").json() == value
    if row.is_removable:
        assert http.delete(path).status_code == 204
        assert http.get(path).content == before.content


def test_a_non_persistent_topic_is_there_and_keeps_nothing(http: httpx.Client, name: str) -> None:
    topic = f"/non-persistent/public/default/{name}"
    assert http.put(topic).status_code == 204
    assert f"non-persistent://public/default/{name}" in http.get("/non-persistent/public/default").json()
    assert http.get(f"{topic}/stats").json()["storageSize"] == 0
    assert http.get(f"{topic}/internalStats").json()["numberOfEntries"] == 0
    assert http.post(f"{topic}/terminate").status_code == 405
    assert http.delete(topic).status_code == 204


def test_why_nothing_is_delivered_is_said(http: httpx.Client, topic: str) -> None:
    http.put(topic).raise_for_status()
    http.put(f"{topic}/subscription/a%2Fb").raise_for_status()
    assert http.get(f"{topic}/subscriptions").json() == ["a/b"]
    assert http.get(f"{topic}/subscription/a%2Fb/explain").json()["reason"] == "no-consumer"
