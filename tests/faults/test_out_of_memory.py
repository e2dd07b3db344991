# SPDX-License-Identifier: Apache-2.0
"""A broker, then a bookie, ended by the kernel because they have no memory left, under consumers that never read and
producers of large batches: nothing acknowledged is lost, and no message ends the next owner as well.
"""

import contextlib
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.brokers import QUICK, client_of, make_namespace, owner_of, port_of
from tests.cluster import Cluster, RoleProcess
from tests.conformance.raw import RawClient
from tests.conftest import Eventually
from tests.faults.client_threads import ClientThread
from tests.faults.memory_limit import limited
from tests.faults.test_bookies import in_send_order, until_more
from tests.faults.test_kill_9 import Publishing

MIB = 1 << 20
BODY = b"x" * (64 << 10)
# As large as a message may be, a little for what describes it left out.
LARGEST = b"x" * (5 * MIB - (32 << 10))
IN_FLIGHT_MAX = 16
STUCK = 8
# What a broker keeps for one that never reads, at most; together far more than it gets.
HELD_MIB = 16
BROKER_MIB = 64
BOOKIE_MIB = 16
SETTINGS = {
    **QUICK,
    # The only copy is on a bookie that will be ended.
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "bookkeeperClientTimeoutInSeconds": "2",
    # However slow the machine is, a bookie holds more than it gets before it writes anything out.
    "flushInterval": "600000",
    "managedLedgerCacheSizeMB": "4",
    "dispatcherMaxReadSizeBytes": str(2 * MIB),
    "pulsarChannelWriteBufferHighWaterMark": str(HELD_MIB * MIB),
}


class Fat(Publishing):
    """Large messages in large batches, one of them the largest there may be; quickly when somebody hurries."""

    hurries = False

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        ClientThread.__init__(self, client)
        self.sent: list[str] = []
        self.acknowledged: dict[str, float] = {}
        self._answered = 0
        self._producer = client.create_producer(
            topic,
            send_timeout_millis=0,
            batching_enabled=True,
            batching_max_allowed_size_in_bytes=IN_FLIGHT_MAX * len(BODY),
            batching_max_publish_delay_ms=2,
        )
        self.begin()

    def _run(self) -> None:
        while not self._stop.is_set():
            if len(self.sent) - self._answered < IN_FLIGHT_MAX:
                self._send(f"m-{len(self.sent)}")
            if not self.hurries or len(self.sent) - self._answered >= IN_FLIGHT_MAX:
                self._stop.wait(0.01)

    def _send(self, name: str) -> None:
        body = LARGEST if len(self.sent) == IN_FLIGHT_MAX else BODY
        self.sent.append(name)
        self._producer.send_async(name.encode() + body, lambda result, _: self._on_answer(name, result))


class Reading(ClientThread):
    """Takes whatever comes, and acknowledges it."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        super().__init__(client)
        self.names: set[str] = set()
        self._consumer = client.subscribe(topic, "reads", receiver_queue_size=8)
        self.begin()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(timeout_millis=200)
            except pulsar.Timeout:
                continue
            self.names.add(name_of(message))
            self._consumer.acknowledge(message)


def name_of(message: pulsar.Message) -> str:
    body: bytes = message.data()
    return body[:20].rstrip(b"x").decode()


class NeverReads(RawClient):
    """On a subscription of its own, from the beginning; its side of the connection keeps as little as can be."""

    def __init__(self, broker: RoleProcess, topic: str, number: int) -> None:
        super().__init__(port_of(broker.said["serviceUrl"]))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.subscribe(topic, f"stuck-{number}", initialPosition=pb.CommandSubscribe.Earliest)

    def ask_for_everything(self) -> None:
        with contextlib.suppress(OSError):  # the broker may have met its end by now
            self.flow(10_000)


def read_names(client: pulsar.Client, topic: str) -> list[str]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=8)
    names = []
    while reader.has_message_available():
        names.append(name_of(reader.read_next(timeout_millis=20_000)))
    reader.close()
    return names


def is_ended_by_the_kernel(role: RoleProcess, eventually: Eventually) -> None:
    eventually(lambda: role.exit_code() is not None, limit_s=60)
    assert role.exit_code() == -signal.SIGKILL, role.log_tail()


@pytest.mark.timeout(180)
@pytest.mark.feature("F-HA-01", "F-HA-05")
def test_who_is_ended_for_memory_under_load_loses_nothing_and_takes_nobody_along(
    tmp_path: Path, eventually: Eventually
) -> None:
    """F213: the owner under consumers that never read, then a bookie under producers in a hurry."""
    with ExitStack() as stack, Cluster(tmp_path, bookies=1, brokers=2, environment=SETTINGS) as cluster:
        topic = f"persistent://{make_namespace(cluster, 'fat', bundles=1)}/t"
        client = client_of(cluster)
        reading, publishing = Reading(client, topic), Fat(client, topic)
        until_more(publishing, 10 * IN_FLIGHT_MAX, eventually)
        owner = owner_of(cluster, topic)
        heir = next(broker for broker in cluster.brokers if broker is not owner)
        stuck = [stack.enter_context(NeverReads(owner, topic, number)) for number in range(STUCK)]
        for broker in (owner, heir):
            stack.enter_context(limited(broker.pid, BROKER_MIB * MIB))
        for each in stuck:
            each.ask_for_everything()
        is_ended_by_the_kernel(owner, eventually)
        # The next owner has the same messages, and no more memory.
        until_more(publishing, 2 * IN_FLIGHT_MAX, eventually)
        assert owner_of(cluster, topic, ask=heir) is heir
        owner.start()
        stack.enter_context(limited(owner.pid, BROKER_MIB * MIB))
        (bookie,) = cluster.bookies
        with limited(bookie.pid, BOOKIE_MIB * MIB):
            publishing.hurries = True
            is_ended_by_the_kernel(bookie, eventually)
            publishing.hurries = False
        bookie.start()
        until_more(publishing, 2 * IN_FLIGHT_MAX, eventually)
        publishing.finish()
        assert publishing.acknowledged.keys() == set(publishing.sent)
        assert in_send_order(read_names(client, topic)) == publishing.sent
        eventually(lambda: reading.names == set(publishing.sent))
        assert [broker.is_running for broker in cluster.brokers] == [True, True]
        reading.stop()
        client.close()
