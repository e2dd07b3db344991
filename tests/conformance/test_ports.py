# SPDX-License-Identifier: Apache-2.0
"""Which doors brokers have: TLS alone, listeners at addresses of their own, load balancers that speak for others."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.brokers import QUICK, QUIET, value
from tests.cluster import Cluster, RoleProcess
from tests.conformance.certificates import Authority
from tests.conformance.raw_client import RawClient
from tests.conformance.web_socket import heard, opened_over_tls, say, sent
from tests.processes import free_port

TOPIC = "persistent://public/default/locked"
ONE_COPY = {f"managedLedgerDefault{name}": "1" for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
Kind = pb.BaseCommand.Type


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Metadata and a bookie; each test has brokers of its own."""
    with Cluster(tmp_path_factory.mktemp("ports"), bookies=1, broker=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class TlsOnly(RoleProcess):
    """Neither of its ports is plain; the system chooses both of them."""

    def __init__(self, name: str, directory: Path, cluster: Cluster, authority: Authority) -> None:
        certificate, key = authority.sign("localhost", name)
        environment = {
            **QUICK,
            **ONE_COPY,
            "brokerServicePortTls": "0",
            "webServicePortTls": "0",
            "tlsCertificateFilePath": certificate,
            "tlsKeyFilePath": key,
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": str(authority.file),
            "webSocketServiceEnabled": "true",
        }
        words = ["broker", "--metadata", cluster.metadata_url, "--port", "-1", "--http-port", "-1"]
        super().__init__(name, directory / name, *words, environment=environment)


@pytest.mark.feature("F-SEC-04", "B-30")
def test_brokers_without_plain_ports_find_each_other_and_are_found(
    cluster: Cluster, authority: Authority, tmp_path: Path
) -> None:
    brokers = [TlsOnly(f"tls-{number}", tmp_path, cluster, authority) for number in range(2)]
    try:
        said = [broker.start() for broker in brokers]
        assert all(each["serviceUrl"].startswith("pulsar+ssl://") for each in said)
        assert all(each["webServiceUrl"].startswith("https://") for each in said)
        names = sorted(each["webServiceUrl"].removeprefix("https://") for each in said)
        for each in said:
            registered = value(cluster, f"/loadbalance/brokers/{each['webServiceUrl'].removeprefix('https://')}")
            assert registered["pulsarServiceUrlTls"] == each["serviceUrl"]
            assert registered["webServiceUrlTls"] == each["webServiceUrl"]
            assert "pulsarServiceUrl" not in registered
            assert "webServiceUrl" not in registered
        leader = value(cluster, "/loadbalance/leader")
        assert leader["serviceUrl"] == f"https://{leader['brokerId']}"
        made = value(cluster, "/admin/clusters/standalone")
        assert made["serviceUrlTls"].startswith("https://")
        assert "serviceUrl" not in made
        for each in said:
            with _https(each, authority) as admin:
                assert admin.get("/admin/v2/brokers/standalone").json() == names
                # Each partition is another broker's, or a redirect leads there.
                assert admin.get(f"/lookup/v2/topic/{TOPIC.replace('://', '/')}").json()["httpUrl"] == ""
        _publish_and_consume(said, authority)
        _open_websockets(said, authority)
        # In order, so that nothing is theirs any more.
        assert [broker.stop() for broker in brokers] == [0, 0]
    finally:
        for broker in brokers:
            if broker.is_running:
                broker.kill()


def _https(said: dict[str, Any], authority: Authority) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(authority.file))
    return httpx.Client(base_url=said["webServiceUrl"], verify=context, timeout=60, follow_redirects=True)


def _open_websockets(said: list[dict[str, Any]], authority: Authority) -> None:
    """At each broker a topic of either: its own is reached without a socket, the other's over TLS."""
    context = ssl.create_default_context(cafile=str(authority.file))
    for each in said:
        for number in range(4):
            path = TOPIC.replace("://", "/") + f"-{number}"
            with opened_over_tls(each["webServiceUrl"], f"/ws/v2/producer/{path}", context) as socket:
                say(socket, payload=sent("x"))
                assert heard(socket)["result"] == "ok"


def _publish_and_consume(said: list[dict[str, Any]], authority: Authority) -> None:
    """Through either broker, whichever owns what; and a bundle moves under the client, to the other's TLS port."""
    url = "pulsar+ssl://" + ",".join(each["serviceUrl"].removeprefix("pulsar+ssl://") for each in said)
    client = pulsar.Client(url, tls_trust_certs_file_path=str(authority.file), logger=QUIET)
    try:
        topics = [f"{TOPIC}-{number}" for number in range(6)]
        producers = [client.create_producer(topic) for topic in topics]
        consumers = [client.subscribe(topic, "s") for topic in topics]
        for producer in producers:
            producer.send(b"before")
        with _https(said[0], authority) as admin:
            assert admin.put("/admin/v2/namespaces/public/default/unload").status_code == 204
        for producer in producers:
            producer.send(b"after")
        for consumer in consumers:
            received: list[bytes] = []
            while len(received) < 2:
                message = consumer.receive(timeout_millis=20_000)
                consumer.acknowledge(message)
                received.append(message.data())
            assert received == [b"before", b"after"]
    finally:
        client.close()


@pytest.mark.feature("B-30")
def test_a_broker_without_any_port_does_not_start(cluster: Cluster, tmp_path: Path) -> None:
    words = ["broker", "--metadata", cluster.metadata_url, "--http-port", "0", "--port", "-1"]
    broker = RoleProcess("shut", tmp_path / "shut", *words, environment=ONE_COPY)
    broker.launch()
    assert broker.wait() == 2
    assert "There is no port for clients: give brokerServicePort" in broker.log_tail()


@pytest.mark.feature("B-30")
def test_listeners_at_addresses_of_their_own_and_a_load_balancer(cluster: Cluster, tmp_path: Path) -> None:
    inside, outside = free_port(), free_port()
    environment = {
        **QUICK,
        **ONE_COPY,
        "bindAddresses": f"internal:pulsar://127.0.0.1:{inside},external:pulsar://127.0.0.1:{outside}",
        "advertisedListeners": f"internal:pulsar://10.0.0.1:{inside},external:pulsar://gate.example:{outside},"
        "external:https://gate.example:8443",
        "haProxyProtocolEnabled": "true",
        "security.haproxy_trusted": "127.0.0.1",
    }
    words = ["broker", "--metadata", cluster.metadata_url, "--port", str(free_port()), "--http-port", "0"]
    broker = RoleProcess("listeners", tmp_path / "listeners", *words, environment=environment)
    try:
        said = broker.start()
        plain = int(said["serviceUrl"].rpartition(":")[2])
        # Who comes in at a listener's address is that listener's; who asks for one by name gets that one.
        assert _place(plain) == said["serviceUrl"]
        assert _place(inside) == f"pulsar://10.0.0.1:{inside}"
        assert _place(outside) == f"pulsar://gate.example:{outside}"
        assert _place(inside, listener="external") == f"pulsar://gate.example:{outside}"
        registered = value(cluster, f"/loadbalance/brokers/{said['webServiceUrl'].removeprefix('http://')}")
        assert registered["advertisedListeners"]["external"] == {
            "brokerServiceUrl": f"pulsar://gate.example:{outside}",
            "brokerHttpsUrl": "https://gate.example:8443",
        }
        for header, client in _HEADERS:
            with RawClient(plain, preamble=header) as raw:
                assert raw.open_producer(TOPIC).type == Kind.PRODUCER_SUCCESS
                path = f"/admin/v2/{TOPIC.replace('://', '/')}/stats"
                publishers = httpx.get(said["webServiceUrl"] + path, timeout=60).json()["publishers"]
                assert client in [each["address"].lstrip("/") for each in publishers]
        assert broker.stop() == 0
    finally:
        if broker.is_running:
            broker.kill()


@pytest.mark.feature("B-30")
def test_nobody_else_is_believed(cluster: Cluster, tmp_path: Path) -> None:
    words = ["broker", "--metadata", cluster.metadata_url, "--port", str(free_port()), "--http-port", "0"]
    settings = {**ONE_COPY, "haProxyProtocolEnabled": "true"}
    refused = RoleProcess("all", tmp_path / "all", *words, environment=settings)
    refused.launch()
    assert refused.wait() == 2
    assert "haProxyProtocolEnabled=true asks for security.haproxy_trusted" in refused.log_tail()
    careful = {**settings, "security.haproxy_trusted": "192.0.2.0/24"}
    broker = RoleProcess("some", tmp_path / "some", *words, environment=careful)
    try:
        port = int(broker.start()["serviceUrl"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
            stranger.sendall(_HEADERS[0][0])
            assert stranger.recv(1) == b""
        assert _place(port).endswith(f":{port}")
    finally:
        broker.kill()


_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_HEADERS = [
    (b"PROXY TCP4 192.0.2.7 192.0.2.8 4711 6650\r\n", "192.0.2.7:4711"),
    (
        _SIGNATURE + b"\x21\x11\x00\x0c" + bytes((192, 0, 2, 9, 192, 0, 2, 8)) + (4712).to_bytes(2, "big") * 2,
        "192.0.2.9:4712",
    ),
]


def _place(port: int, listener: str = "") -> str:
    with RawClient(port) as client:
        request = pb.CommandLookupTopic(topic=TOPIC, request_id=client.request_id(), authoritative=True)
        if listener:
            request.advertised_listener_name = listener
        client.say(Kind.LOOKUP, request)
        return client.answer_to(request.request_id).lookupTopicResponse.brokerServiceUrl
