# SPDX-License-Identifier: Apache-2.0
"""Consumers that never read their sockets: the broker keeps no more for them than its settings allow."""

import json
import socket
from pathlib import Path
from urllib.request import urlopen

import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw import RawClient
from tests.processes import StandaloneProcess

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
TOPIC = "persistent://public/default/t"
MIB = 1 << 20
MESSAGE = b"x" * (MIB // 2)
MESSAGES = 50
STUCK = 2
SETTINGS = {
    "pulsarChannelWriteBufferHighWaterMark": str(MIB // 4),
    "dispatcherMaxReadSizeBytes": str(MIB // 2),
}
# The mark, and one round that went beyond it: what is read for dispatch, and the entry that ends it.
HELD_BYTES_MAX = MIB // 4 + MIB // 2 + len(MESSAGE)


def kept_by_kernel(port: int) -> int:
    """Bytes from a server's port that its clients have not read: those on their way out, and those that came in."""
    kept = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        outgoing, incoming = (int(size, 16) for size in queues.split(":"))
        kept += outgoing if _port(local) == port else incoming if _port(remote) == port else 0
    return kept


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def sent_to(standalone: StandaloneProcess, subscription: str) -> int:
    """Messages that the broker has sent to the consumers of a subscription."""
    with urlopen(f"{standalone.web_url}/admin/v2/persistent/public/default/t/stats") as answer:
        stats = json.load(answer)
    return sum(consumer["msgOutCounter"] for consumer in stats["subscriptions"][subscription]["consumers"])


def taken(consumer: pulsar.Consumer, count: int) -> None:
    for _ in range(count):
        consumer.acknowledge(consumer.receive(timeout_millis=20_000))


def stuck_consumer(port: int) -> RawClient:
    """Asks for all there is, and never reads it; its own side keeps as little as can be."""
    client = RawClient(port)
    client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.subscribe(TOPIC, "s", subType=pb.CommandSubscribe.Shared)
    client.flow(10 * MESSAGES)
    return client


@pytest.mark.feature("B-30")
def test_little_is_kept_for_consumers_that_never_read_and_others_go_on(tmp_path: Path) -> None:
    """F102: what was held back goes to one who reads, and what they were sent as well when they are gone."""
    with StandaloneProcess(tmp_path, environment=SETTINGS) as standalone:
        client = pulsar.Client(standalone.service_url, logger=QUIET)
        other = client.subscribe(TOPIC, "other", receiver_queue_size=10)
        stuck = [stuck_consumer(standalone.port) for _ in range(STUCK)]
        producer = client.create_producer(TOPIC, batching_enabled=False, block_if_queue_full=True)
        for _ in range(MESSAGES):
            producer.send_async(MESSAGE, lambda *_: None)
        taken(other, MESSAGES)
        held = sent_to(standalone, "s") * len(MESSAGE) - kept_by_kernel(standalone.port)
        assert held <= STUCK * HELD_BYTES_MAX
        beside = client.subscribe(TOPIC, "s", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=10)
        taken(beside, MESSAGES // 4)
        for each in stuck:
            each.close()
        taken(beside, MESSAGES - MESSAGES // 4)
        client.close()
