# SPDX-License-Identifier: Apache-2.0
"""The WebSocket API of a real standalone, as clients without a Pulsar library use it, beside the official client.

What is expected here is what Apache Pulsar 4.0.8 answered to the same texts, but where a comment says otherwise.
"""

import base64
import json
import socket
from collections.abc import Iterator

import httpx
import pulsar
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection

from tests.conformance.web_socket import end_of, heard, opened, payload_of, refusal, say, sent, silent
from tests.conftest import Eventually
from tests.processes import StandaloneProcess

NAMESPACE = "persistent/public/default"


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    settings = {"webSocketMaxTextFrameSize": "65536", "webSocketSessionIdleTimeoutMillis": "600000"}
    with StandaloneProcess(tmp_path_factory.mktemp("websocket"), environment=settings) as process:
        yield process


def producer(standalone: StandaloneProcess, topic: str, query: str = "") -> ClientConnection:
    return opened(standalone.web_url, f"/ws/v2/producer/{NAMESPACE}/{topic}?{query}")


def consumer(standalone: StandaloneProcess, topic: str, query: str = "", subscription: str = "s") -> ClientConnection:
    return opened(standalone.web_url, f"/ws/v2/consumer/{NAMESPACE}/{topic}/{subscription}?{query}")


def reader(standalone: StandaloneProcess, topic: str, query: str = "") -> ClientConnection:
    return opened(standalone.web_url, f"/ws/v2/reader/{NAMESPACE}/{topic}?{query}")


def publish(standalone: StandaloneProcess, topic: str, *payloads: str, query: str = "") -> list[str]:
    with producer(standalone, topic, query) as socket:
        for payload in payloads:
            say(socket, payload=sent(payload))
        answers = [heard(socket) for _ in payloads]
    assert {answer["result"] for answer in answers} == {"ok"}
    return [answer["messageId"] for answer in answers]


# --- producing --------------------------------------------------------------------------------------


@pytest.mark.feature("F-PLAT-11", "F-PH-10", "B-27")
def test_a_message_goes_in_by_websocket_and_out_by_both(standalone: StandaloneProcess) -> None:
    client = pulsar.Client(standalone.service_url)
    official = client.subscribe("both-ways", "official")
    with consumer(standalone, "both-ways") as consuming, producer(standalone, "both-ways") as producing:
        say(
            producing,
            payload=sent("hello"),
            properties={"a": "b", "n": 5},
            context="c-1",
            key="k",
            eventTime="2020-01-02T03:04:05.670Z",
        )
        receipt = heard(producing)
        assert list(receipt) == ["result", "messageId", "context", "errorCode", "schemaVersion"]
        assert (receipt["result"], receipt["context"], receipt["errorCode"]) == ("ok", "c-1", 0)
        message = heard(consuming)
        assert list(message) == [
            "messageId",
            "payload",
            "properties",
            "publishTime",
            "redeliveryCount",
            "eventTime",
            "key",
        ]
        assert payload_of(message) == b"hello"
        assert message["messageId"] == receipt["messageId"]
        assert message["properties"] == {"a": "b", "n": "5"}
        assert (message["key"], message["eventTime"]) == ("k", "2020-01-02T03:04:05.67Z")
        assert message["redeliveryCount"] == 0
        say(consuming, messageId=message["messageId"])
    found = official.receive(timeout_millis=30_000)
    assert (found.data(), found.properties()) == (b"hello", {"a": "b", "n": "5"})
    assert (found.partition_key(), found.event_timestamp()) == ("k", 1_577_934_245_670)
    client.close()


@pytest.mark.feature("F-PH-10")
def test_what_cannot_be_read_is_answered_and_the_session_goes_on(standalone: StandaloneProcess) -> None:
    with producer(standalone, "bad-texts") as socket:
        for text, code, context in (
            ("{nope", 3, None),
            ("[1]", 3, None),
            ('{"payload": "QQ==", "properties": {"a": {"b": 1}}}', 3, None),
            ('{"payload": "@@@", "context": "x"}', 7, "x"),
            ('{"context": "x"}', 7, "x"),
            ('{"payload": null, "context": 7}', 7, "7"),
            ('{"payload": "QQ==", "eventTime": "yesterday", "context": "x"}', 7, "x"),
        ):
            socket.send(text)
            answer = heard(socket)
            assert answer["result"] == f"send-error:{code}", text
            assert answer.get("context") == context, text
            assert answer["errorMsg"], text
        # What is unknown, and base64 without its end, are taken.
        say(socket, payload="aGVsbG8", nonsense={"a": 1})
        assert heard(socket)["result"] == "ok"


@pytest.mark.feature("F-PH-10")
def test_batches_compression_and_names_are_as_the_query_says(standalone: StandaloneProcess) -> None:
    query = (
        "batchingEnabled=true&batchingMaxMessages=3&batchingMaxPublishDelay=60000&compressionType=ZLIB&producerName=me"
    )
    with consumer(standalone, "batched") as consuming:
        ids = [base64.b64decode(text) for text in publish(standalone, "batched", "a", "b", "c", query=query)]
        places = [pulsar.MessageId.deserialize(each) for each in ids]
        assert len({place.entry_id() for place in places}) == 1
        assert [place.batch_index() for place in places] == [0, 1, 2]
        messages = [heard(consuming) for _ in range(3)]
        assert [payload_of(message) for message in messages] == [b"a", b"b", b"c"]
        for message in messages:
            say(consuming, messageId=message["messageId"])


@pytest.mark.feature("F-PH-10")
def test_requests_that_cannot_be_are_refused_in_http(standalone: StandaloneProcess) -> None:
    url = standalone.web_url
    made, used = f"/ws/v2/producer/{NAMESPACE}/refused", f"/ws/v2/consumer/{NAMESPACE}/refused"
    for path, status, words in (
        (f"{made}?compressionType=NOPE", 400, "Invalid query params: Invalid compressionType NOPE"),
        (f"{made}?sendTimeoutMillis=abc", 400, "Invalid query params"),
        (f"{made}?encryptionKeys=abc", 500, "no keys of its own"),
        (f"{used}/s?subscriptionType=Nope", 400, "Invalid query params: Invalid subscriptionType Nope"),
        (f"{used}/s?receiverQueueSize=-1", 400, "receiverQueueSize"),
        (f"{used}/s?ackTimeoutMillis=5", 400, "ackTimeoutMillis"),
        (f"{used}/s?deadLetterTopic=d&subscriptionType=Shared", 400, "maxRedeliverCount"),
        (used, 400, "{subscription}"),
        ("/ws/v2/producer/persistent/public/nowhere/t", 404, "Namespace not found"),
        ("/ws/v2/nothing/persistent/public/default/t", 404, "/ws/v2/producer"),
        ("/ws/v3/consumer/s", 400, "topics or topicsPattern"),
        # Apache Pulsar says 500 to these, although it is the client that is wrong.
        ("/ws/v2/producer/persistent/public/default", 400, "{topic}"),
        (f"/ws/v2/reader/{NAMESPACE}/refused?messageId=@@@", 400, "messageId"),
    ):
        found = refusal(url, path)
        assert found[0] == status, (path, found)
        assert words in found[1], (path, found)
    with producer(standalone, "refused", "producerName=one"), consumer(standalone, "refused"):
        assert refusal(url, f"{made}?producerName=one")[0] == 409
        assert refusal(url, f"{used}/s")[0] == 409
    answer = httpx.get(url + made)
    assert (answer.status_code, "upgrade" in answer.text) == (405, True)


@pytest.mark.feature("F-PH-10")
def test_too_long_a_text_or_one_of_bytes_ends_the_session(standalone: StandaloneProcess) -> None:
    with producer(standalone, "long") as socket:
        say(socket, payload="A" * 70_000)
        assert end_of(socket)[0] == 1009
    with producer(standalone, "long") as socket:
        socket.send(b"\x01\x02")
        assert end_of(socket) == (1003, "This endpoint takes texts only")


# --- consuming --------------------------------------------------------------------------------------


@pytest.mark.feature("F-PH-10")
def test_what_is_acknowledged_does_not_come_again_and_what_is_not_does(standalone: StandaloneProcess) -> None:
    publish(standalone, "acked", "0")
    earliest = "subscriptionInitialPosition=Earliest"
    with consumer(standalone, "acked", earliest) as socket:
        say(socket, type="isEndOfTopic")
        seen = [heard(socket), heard(socket)]
        assert {"endOfTopic": False} in seen
    publish(standalone, "acked", "1")
    with consumer(standalone, "acked") as socket:
        messages = [heard(socket), heard(socket)]
        assert [payload_of(message) for message in messages] == [b"0", b"1"]
        say(socket, messageId=messages[0]["messageId"])
    with consumer(standalone, "acked") as socket:
        assert payload_of(heard(socket)) == b"1"


@pytest.mark.feature("F-PH-10")
def test_no_more_is_sent_than_the_client_takes(standalone: StandaloneProcess) -> None:
    publish(standalone, "windowed", *"abcde")
    earliest = "subscriptionInitialPosition=Earliest"
    with consumer(standalone, "windowed", f"receiverQueueSize=2&{earliest}") as socket:
        first = [heard(socket), heard(socket)]
        assert silent(socket)
        say(socket, messageId=first[0]["messageId"])
        assert payload_of(heard(socket)) == b"c"
        assert silent(socket)
    with consumer(standalone, "windowed", f"pullMode=true&{earliest}", "pulled") as socket:
        assert silent(socket)
        say(socket, type="permit", permitMessages=2)
        assert [payload_of(heard(socket)) for _ in range(2)] == [b"a", b"b"]
        assert silent(socket)
        say(socket, type="permit", permitMessages=1)
        assert payload_of(heard(socket)) == b"c"


@pytest.mark.feature("F-PH-10")
def test_a_refused_message_comes_again_and_at_last_is_a_dead_letter(standalone: StandaloneProcess) -> None:
    query = (
        "subscriptionType=Shared&negativeAckRedeliveryDelay=1&maxRedeliverCount=2&subscriptionInitialPosition=Earliest"
    )
    publish(standalone, "refusals", "poison")
    with consumer(standalone, "refusals", query) as socket:
        counts = []
        for _ in range(3):
            message = heard(socket)
            counts.append(message["redeliveryCount"])
            say(socket, type="negativeAcknowledge", messageId=message["messageId"])
        assert counts == [0, 1, 2]
        with reader(standalone, "refusals-s-DLQ", "messageId=earliest") as letters:
            assert payload_of(heard(letters)) == b"poison"


@pytest.mark.feature("F-PH-10")
def test_unsubscribing_deletes_the_subscription_and_leaves_the_session(
    standalone: StandaloneProcess, eventually: Eventually
) -> None:
    subscriptions = f"{standalone.web_url}/admin/v2/{NAMESPACE}/left/subscriptions"
    with consumer(standalone, "left") as socket:
        assert httpx.get(subscriptions).json() == ["s"]
        say(socket, type="unsubscribe")
        eventually(lambda: httpx.get(subscriptions).json() == [])
        say(socket, type="isEndOfTopic")
        assert heard(socket) == {"endOfTopic": False}


@pytest.mark.feature("F-PH-10")
def test_a_consumers_bad_text_ends_its_session_with_a_reason(standalone: StandaloneProcess) -> None:
    """Apache Pulsar cuts the connection, or says 1011 with Java's words; a client cannot tell what was wrong."""
    for text in ("{nope", "{}", '{"messageId": "@@"}', '{"messageId": "AAAA"}', '{"type": "permit"}'):
        with consumer(standalone, "bad-acks") as socket:
            socket.send(text)
            code, reason = end_of(socket)
            assert (code, reason[:32]) == (1007, "Failed to de-serialize from JSON"), text


@pytest.mark.feature("F-PH-10", "B-27")
def test_one_consumer_of_many_topics_by_name_and_by_pattern(standalone: StandaloneProcess) -> None:
    topics = [f"persistent://public/default/many-{name}" for name in "ab"]
    for topic in topics:
        publish(standalone, topic.rpartition("/")[2], topic)
    earliest = "subscriptionInitialPosition=Earliest"
    for query in (f"topics={','.join(topics)}", "topicsPattern=persistent://public/default/many-.*"):
        subscription = query.partition("=")[0]
        with opened(standalone.web_url, f"/ws/v3/consumer/{subscription}?{query}&{earliest}") as socket:
            messages = [heard(socket), heard(socket)]
            assert sorted(payload_of(message).decode() for message in messages) == topics
            for message in messages:
                say(socket, messageId=message["messageId"])
        with opened(standalone.web_url, f"/ws/v3/consumer/{subscription}?{query}&{earliest}") as socket:
            assert silent(socket), "both were acknowledged, each on its own topic"


# --- reading ----------------------------------------------------------------------------------------


@pytest.mark.feature("F-PH-10")
def test_a_reader_starts_where_it_is_told(standalone: StandaloneProcess) -> None:
    ids = publish(standalone, "read", *"abc")
    for start, expected in (("earliest", "abc"), (ids[0], "bc")):
        with reader(standalone, "read", f"messageId={start.replace('=', '%3D')}") as socket:
            assert "".join(payload_of(heard(socket)).decode() for _ in expected) == expected
            say(socket, type="isEndOfTopic")
            assert heard(socket) == {"endOfTopic": False}
    with reader(standalone, "read", "messageId=earliest&receiverQueueSize=1") as socket:
        first = heard(socket)
        assert silent(socket)
        say(socket, messageId=first["messageId"])
        assert payload_of(heard(socket)) == b"b"
    with reader(standalone, "read") as socket:
        publish(standalone, "read", "d")
        assert payload_of(heard(socket)) == b"d"


# --- publishing over HTTP ---------------------------------------------------------------------------


@pytest.mark.feature("F-PLAT-11", "F-PH-10", "B-27")
def test_one_request_publishes_messages_each_with_its_result(standalone: StandaloneProcess) -> None:
    with httpx.Client(base_url=standalone.web_url, timeout=30) as http:
        assert http.put(f"/admin/v2/{NAMESPACE}/posted").status_code == 204
        with reader(standalone, "posted", "messageId=earliest") as socket:
            body = {
                "producerName": "me",
                "messages": [{"payload": "a", "key": "k"}, {"payload": "b", "eventTime": "7"}],
            }
            answer = http.post(f"/topics/{NAMESPACE}/posted", json=body)
            assert answer.status_code == 200, answer.text
            results = answer.json()["messagePublishResults"]
            assert [result["errorCode"] for result in results] == [0, 0]
            assert all(result["messageId"].endswith(":-1") for result in results)
            messages = [heard(socket), heard(socket)]
        assert [payload_of(message) for message in messages] == [b"a", b"b"]
        assert (messages[0]["key"], messages[1]["eventTime"]) == ("k", "1970-01-01T00:00:00.007Z")
        schema = http.get("/admin/v2/schemas/public/default/posted/schema").json()
        assert (schema["type"], schema["properties"]) == ("STRING", {"__charset": "UTF-8"})
        # Apache Pulsar says 500 where its own documentation says 404.
        assert http.post(f"/topics/{NAMESPACE}/nowhere", json=body).status_code == 404


@pytest.mark.feature("F-PH-10")
def test_messages_posted_to_partitions_go_round_or_where_they_are_sent(standalone: StandaloneProcess) -> None:
    with httpx.Client(base_url=standalone.web_url, timeout=30) as http:
        assert http.put(f"/admin/v2/{NAMESPACE}/parted/partitions", json=3).status_code == 204
        four = {"messages": [{"payload": str(number)} for number in range(4)]}
        results = http.post(f"/topics/{NAMESPACE}/parted", json=four).json()["messagePublishResults"]
        assert [result["messageId"].rpartition(":")[2] for result in results] == ["0", "1", "2", "0"]
        results = http.post(f"/topics/{NAMESPACE}/parted/partitions/2", json=four).json()["messagePublishResults"]
        assert {result["messageId"].rpartition(":")[2] for result in results} == {"2"}
        assert http.post(f"/topics/{NAMESPACE}/parted/partitions/9", json=four).status_code == 404
        assert http.post(f"/topics/{NAMESPACE}/parted-partition-1/partitions/1", json=four).status_code == 400


@pytest.mark.feature("F-PH-10")
def test_texts_are_encoded_with_the_schema_and_one_that_does_not_fit_is_refused(
    standalone: StandaloneProcess,
) -> None:
    """Apache Pulsar stores an empty payload for a text that its schema cannot read, and says that all is well."""
    definition = json.dumps({"type": "record", "name": "U", "fields": [{"name": "a", "type": "int"}]})
    described = json.dumps({"type": "AVRO", "schema": sent(definition), "properties": {}})
    with httpx.Client(base_url=standalone.web_url, timeout=30) as http:
        assert http.put(f"/admin/v2/{NAMESPACE}/typed").status_code == 204
        body = {"valueSchema": described, "messages": [{"payload": '{"a": 5}'}, {"payload": "nope"}]}
        answer = http.post(f"/topics/{NAMESPACE}/typed", json=body).json()
        assert [result["errorCode"] for result in answer["messagePublishResults"]] == [0, 2]
        again = {"schemaVersion": answer["schemaVersion"], "messages": [{"payload": '{"a": 6}'}]}
        assert http.post(f"/topics/{NAMESPACE}/typed", json=again).status_code == 200
        assert http.post(f"/topics/{NAMESPACE}/typed", json={"messages": [{"payload": "x"}]}).status_code == 409
        assert http.post(f"/topics/{NAMESPACE}/typed", json={**again, "schemaVersion": 9}).status_code == 404
    with reader(standalone, "typed", "messageId=earliest") as socket:
        assert [payload_of(heard(socket)) for _ in range(2)] == [b"\x0a", b"\x0c"]


# --- the service ------------------------------------------------------------------------------------


@pytest.mark.feature("B-27")
def test_the_statistics_of_a_proxy_show_open_sessions(standalone: StandaloneProcess, eventually: Eventually) -> None:
    stats = f"{standalone.web_url}/admin/v2/proxy-stats"
    with (
        producer(standalone, "counted") as producing,
        consumer(standalone, "counted", "subscriptionType=Shared") as taking,
    ):
        say(producing, payload=sent("x"))
        heard(producing)
        heard(taking)
        found = httpx.get(f"{stats}/{NAMESPACE}/counted/stats").json()
        assert [row["numberOfMsgPublished"] for row in found["producerStats"]] == [1]
        (row,) = found["consumerStats"]
        assert (row["subscriptionName"], row["subscriptionType"], row["subscriptionMode"]) == ("s", "Shared", "Durable")
        assert row["numberOfMsgDelivered"] == 1
        assert found == httpx.get(f"{stats}/stats").json()["persistent://public/default/counted"]
        assert httpx.get(f"{stats}/metrics").status_code == 200
    eventually(lambda: httpx.get(f"{stats}/{NAMESPACE}/counted/stats").status_code == 404)


@pytest.mark.feature("F-PH-10")
def test_a_session_that_is_cut_leaves_its_subscription_to_the_next(
    standalone: StandaloneProcess, eventually: Eventually
) -> None:
    publish(standalone, "cut", "x")
    with consumer(standalone, "cut", "subscriptionInitialPosition=Earliest") as first:
        assert payload_of(heard(first)) == b"x"
        first.socket.shutdown(socket.SHUT_RDWR)

    def again() -> bool:
        try:
            with consumer(standalone, "cut") as second:
                return payload_of(heard(second)) == b"x"
        except InvalidStatus as error:
            return error.response.status_code != 409

    assert eventually(again)
