# SPDX-License-Identifier: Apache-2.0
"""Topics and subscriptions with names that were made to hurt: each is refused at once, or all that one does works."""

import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx

from magnetar.wire import message
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw import RawClient
from tests.conformance.raw_client import RawClient as Sender
from tests.conformance.raw_client import Type, body
from tests.processes import StandaloneProcess

NAMES: Final = [
    *("..", ".", "../../escaped", "..%2f..%2fescaped", "%2e%2e", "%2e%2e%2fescaped", "a%2Fb", "a%00b", "a\x00b"),
    *("/etc/escaped", "\\escaped", "..\\..\\escaped", "C:escaped", "CON", "nul", "~", "-", "x" * 64 * 1024),
    *(" begins", "ends ", "in between", 'a"b', "a'b", "a\nb", "a\r\nb 1", "a\tb", "a{b}c", "a\\", "#", "a?b", "a&b=c"),
    *("*", "\u202eright to left", "\u200b", "e\u0301", "\u00e9", "\ufeff", "%", "%zz", "%41", "A", "a+b", "a b"),
]
EARLIEST: Final = pb.CommandSubscribe.Earliest
METRIC: Final = re.compile(r'[a-zA-Z_:][\w:]*(\{(\w+="([^"\\\n]|\\["\\n])*",?)*\})? \S+( \d+)?')


def paths_beside(standalone: StandaloneProcess) -> set[str]:
    """What there is outside the data: two levels up, by name."""
    above = standalone.directory.parent
    data = standalone.data_directory
    return {str(path) for path in above.rglob("*") if data not in path.parents}


def published(port: int, topic: str, payload: bytes) -> bool:
    """Whether the topic was made; if so, it has this message."""
    with Sender(port) as sender:
        answer = sender.open_producer(topic)
        if answer.type == Type.ERROR:
            assert answer.error.error in (pb.InvalidTopicName, pb.NotAllowedError, pb.TopicNotFound), answer
            assert sender.open_producer("bystander").type == Type.PRODUCER_SUCCESS, "the connection is good"
            return False
        sender.send(data=body(payload=payload))
        assert sender.expect(Type.SEND_RECEIPT)
        return True


def consumed(port: int, topic: str, subscription: str) -> list[bytes] | None:
    """All messages; None where the subscription was refused."""
    with RawClient(port) as client:
        answer = client.subscribe(topic, subscription, initialPosition=EARLIEST)
        if isinstance(answer, pb.CommandError):
            return None
        client.flow(10)
        came, data = client.expect_message()
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[came.message_id])
        client.send(pb.BaseCommand.ACK, ack)
        client.quiet()
        return [bytes(message.split(data)[1])]


def test_a_name_is_refused_or_serves_like_any_other(standalone: StandaloneProcess) -> None:
    """F144, F145: no two names are one, nothing is written beside the data, and what is said of them can be read."""
    before = paths_beside(standalone)
    root = f"{standalone.web_url}/admin/v2/persistent/public/default"
    made = [name for name in NAMES if published(standalone.port, f"persistent://public/default/{name}", name.encode())]
    assert {"in between", 'a"b', "e\u0301", "\u00e9", "%41", "A", "a+b", "a b"} <= set(made)
    assert not {"..", ".", "a\x00b"} & set(made)
    listed = httpx.get(root, timeout=30).json()
    for name in made:
        topic = f"persistent://public/default/{name}"
        assert listed.count(topic) == 1
        assert consumed(standalone.port, topic, "plain") == [name.encode()]
        taken = consumed(standalone.port, topic, name)
        assert taken in (None, [name.encode()])
        path = f"{root}/{quote(name, safe='')}"
        subscriptions = set(httpx.get(f"{path}/subscriptions", timeout=30).json())
        assert subscriptions == {"plain", name} if taken else {"plain"}
    lines = httpx.get(f"{standalone.web_url}/metrics", timeout=30).text.split("\n")
    assert not [line for line in lines if line and not line.startswith("#") and not METRIC.fullmatch(line)]
    for name in made:
        answer = httpx.delete(f"{root}/{quote(name, safe='')}?force=true", timeout=30)
        assert answer.status_code == 204, (name, answer.text)
    assert not [name for name in made if f"persistent://public/default/{name}" in httpx.get(root, timeout=30).json()]
    assert paths_beside(standalone) == before
    assert not Path("/etc/escaped").exists()
