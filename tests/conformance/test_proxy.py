# SPDX-License-Identifier: Apache-2.0
"""Official clients through a proxy; what passes it, what it refuses, and that it keeps nothing to itself."""

import base64
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pulsar
import pytest

from magnetar.wire import commands
from magnetar.wire.commands import Sender
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.cluster import RoleProcess
from tests.conformance.exchanges import QUIET
from tests.conformance.guarded import SECRET, GuardedStandalone, token
from tests.conformance.raw_client import RawClient
from tests.conformance.web_socket import heard, opened, payload_of, refusal, say, sent
from tests.processes import StandaloneProcess, free_port

Type = pb.BaseCommand
ask = partial(httpx.request, timeout=30)


class ProxyProcess(RoleProcess):
    """`magnetar proxy` in front of brokers that are named by URLs."""

    def __init__(self, directory: Path, broker: str, web: str, **settings: str) -> None:
        self.port, self.http_port = free_port(), free_port()
        words = ["proxy", "--broker-url", broker, "--broker-web-url", web]
        words += ["--port", str(self.port), "--http-port", str(self.http_port)]
        super().__init__("proxy", directory, *words, environment={"brokerProxyAllowedTargetPorts": "*", **settings})

    def command(self) -> list[str]:
        line = super().command()
        at = line.index("--data-dir")
        return line[:at] + line[at + 2 :]

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"


@contextmanager
def running(proxy: ProxyProcess) -> Iterator[ProxyProcess]:
    proxy.start()
    try:
        yield proxy
    finally:
        if proxy.is_running:
            proxy.kill()


@pytest.fixture(scope="module")
def proxy(standalone: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    directory = tmp_path_factory.mktemp("proxy")
    with running(ProxyProcess(directory, standalone.service_url, standalone.web_url)) as process:
        yield process


def exchange(client: pulsar.Client, topic: str, count: int = 10) -> None:
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic)
    for number in range(count):
        producer.send(b"%d" % number)
    for number in range(count):
        message = consumer.receive(timeout_millis=20_000)
        assert message.data() == b"%d" % number
        consumer.acknowledge(message)
    consumer.close()
    producer.close()


def ports_called_by_this_process() -> set[int]:
    found = psutil.Process().net_connections(kind="tcp")
    return {each.raddr.port for each in found if each.raddr and each.status == psutil.CONN_ESTABLISHED}


@pytest.mark.feature("F-PXY-01")
@pytest.mark.feature("F-SEC-11")
def test_a_client_needs_only_the_proxy(standalone: StandaloneProcess, proxy: ProxyProcess) -> None:
    client = pulsar.Client(proxy.service_url, logger=QUIET)
    try:
        consumer = client.subscribe("hidden", "s")
        producer = client.create_producer("hidden")
        producer.send(b"through")
        assert consumer.receive(timeout_millis=20_000).data() == b"through"
        called = ports_called_by_this_process()
        assert proxy.port in called
        assert standalone.port not in called
    finally:
        client.close()


@pytest.mark.feature("F-PXY-01")
def test_partitions_patterns_schemas_and_readers_go_through(standalone: StandaloneProcess, proxy: ProxyProcess) -> None:
    ask("PUT", f"{standalone.web_url}/admin/v2/persistent/public/default/parts/partitions", json=3).raise_for_status()
    client = pulsar.Client(proxy.service_url, logger=QUIET)
    try:
        assert len(client.get_topic_partitions("parts")) == 3
        exchange(client, "parts", 1)
        schema = pulsar.schema.StringSchema()
        client.create_producer("typed", schema=schema).send("text")
        reader = client.create_reader("typed", pulsar.MessageId.earliest, schema=schema)
        assert reader.read_next(timeout_millis=20_000).value() == "text"
        found = client.subscribe(re.compile("persistent://public/default/typ.*"), "p").topic()
        assert found
    finally:
        client.close()


SOCKETS: list[socket.socket] = []


def called(port: int) -> socket.socket:
    """A connection that is closed with the test."""
    SOCKETS.append(socket.create_connection(("127.0.0.1", port), timeout=20))
    return SOCKETS[-1]


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while SOCKETS:
        SOCKETS.pop().close()


class Wire:
    """A client's socket that is read byte by byte."""

    def __init__(self, port: int, **connect: Any) -> None:
        self.socket = called(port)
        request = pb.CommandConnect(client_version="wire", protocol_version=21, **connect)
        self.socket.sendall(commands.encode(Type.CONNECT, request))

    def exactly(self, size: int) -> bytes:
        return read_exactly(self.socket, size)

    def command(self) -> pb.BaseCommand:
        return read_command(self.socket, Sender.BROKER)


def read_exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = source.recv(size - len(data))
        assert chunk, "the connection ended"
        data += chunk
    return data


def read_command(source: socket.socket, sender: Sender) -> pb.BaseCommand:
    size = int.from_bytes(read_exactly(source, 4), "big")
    return commands.parse(read_exactly(source, size)[4:], sender)


@pytest.mark.feature("F-PXY-02")
def test_after_the_handshake_bytes_are_passed_unchanged(proxy: ProxyProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        client = Wire(proxy.port, proxy_to_broker_url=target)
        # Bytes that follow CONNECT at once must not be lost or read.
        early = os.urandom(100)
        client.socket.sendall(early)
        broker, _ = listener.accept()
        broker.settimeout(20)
        connect = read_command(broker, Sender.CLIENT).connect
        assert connect.proxy_version.startswith("Magnetar")
        assert not connect.proxy_to_broker_url
        assert connect.client_version == "wire"
        welcome = pb.CommandConnected(server_version="fake", protocol_version=19, max_message_size=77)
        behind = os.urandom(100)
        broker.sendall(commands.encode(Type.CONNECTED, welcome) + behind)
        connected = client.command().connected
        assert (connected.server_version, connected.protocol_version, connected.max_message_size) == ("fake", 19, 77)
        assert client.exactly(100) == behind
        assert read_exactly(broker, 100) == early
        for size in (1, 17, 50_000):
            noise = os.urandom(size)
            client.socket.sendall(noise)
            assert read_exactly(broker, size) == noise
            broker.sendall(noise[::-1])
            assert client.exactly(size) == noise[::-1]
        broker.close()
        assert client.socket.recv(1) == b""


@pytest.mark.feature("F-PXY-02")
def test_a_look_up_is_answered_with_the_way_through_the_proxy(
    standalone: StandaloneProcess, proxy: ProxyProcess
) -> None:
    client = Wire(proxy.port)
    assert client.command().connected.protocol_version > 0
    request = pb.CommandLookupTopic(topic="persistent://public/default/t", request_id=4711)
    client.socket.sendall(commands.encode(Type.LOOKUP, request))
    answer = client.command().lookupTopicResponse
    assert answer.request_id == 4711
    assert answer.response == pb.CommandLookupTopicResponse.Connect
    assert answer.proxy_through_service_url
    assert answer.brokerServiceUrl == answer.brokerServiceUrlTls == standalone.service_url
    # What only a topic's broker can do is refused here, by the request's own number.
    subscribe = pb.CommandProducer(topic="persistent://public/default/t", producer_id=1, request_id=4712)
    client.socket.sendall(commands.encode(Type.PRODUCER, subscribe))
    assert client.command().error.request_id == 4712


@pytest.mark.feature("F-PXY-03")
def test_two_proxies_are_as_good_as_one_and_one_may_die(
    standalone: StandaloneProcess, proxy: ProxyProcess, tmp_path: Path
) -> None:
    with running(ProxyProcess(tmp_path, standalone.service_url, standalone.web_url)) as second:
        client = pulsar.Client(f"pulsar://127.0.0.1:{second.port},127.0.0.1:{proxy.port}", logger=QUIET)
        try:
            consumer = client.subscribe("two-doors", "s")
            producer = client.create_producer("two-doors", send_timeout_millis=30_000)
            producer.send(b"before")
            second.kill()
            producer.send(b"after")
            assert [consumer.receive(timeout_millis=30_000).data() for _ in range(2)] == [b"before", b"after"]
        finally:
            client.close()


@pytest.mark.feature("F-PXY-04")
def test_administration_through_the_proxy_is_the_same(standalone: StandaloneProcess, proxy: ProxyProcess) -> None:
    made = ask("PUT", f"{proxy.web_url}/admin/v2/namespaces/public/by-proxy", json={"bundles": {"numBundles": 7}})
    assert made.status_code == 204
    for path in (
        "/admin/v2/namespaces/public",
        "/admin/v2/namespaces/public/by-proxy",
        "/admin/v2/namespaces/public/by-proxy/bundles",
        "/admin/v2/tenants/nobody",
        "/admin/v2/clusters/standalone",
        "/admin/v2/persistent/public/default/no%2Fthing/stats",
        "/lookup/v2/topic/persistent/public/default/t",
    ):
        through, direct = ask("GET", proxy.web_url + path), ask("GET", standalone.web_url + path)
        assert (through.status_code, through.content) == (direct.status_code, direct.content), path
        assert through.headers["content-type"] == direct.headers["content-type"]
    assert ask("DELETE", f"{proxy.web_url}/admin/v2/namespaces/public/by-proxy").status_code == 204
    assert ask("GET", f"{proxy.web_url}/metrics").text.startswith("# ")
    assert ask("GET", f"{proxy.web_url}/status.html").text == "OK"
    assert ask("GET", f"{proxy.web_url}/etc/passwd").status_code == 404


@pytest.mark.feature("F-PXY-05")
def test_look_ups_beyond_the_bound_are_refused_as_too_many(standalone: StandaloneProcess, tmp_path: Path) -> None:
    """Two wait for a broker that takes connections and says nothing; the third is told so at once."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = f"pulsar://127.0.0.1:{silent.getsockname()[1]}"
        proxy = ProxyProcess(tmp_path, broker, standalone.web_url, maxConcurrentLookupRequests="2")
        with running(proxy), RawClient(proxy.port) as raw:
            for number in range(3):
                question = pb.CommandLookupTopic(topic=f"persistent://public/default/t{number}", request_id=number)
                raw.say(Type.LOOKUP, question)
            refused = raw.expect(Type.LOOKUP_RESPONSE).lookupTopicResponse
            assert (refused.request_id, refused.error) == (2, pb.TooManyRequests), refused


def test_a_target_outside_the_rules_is_refused(standalone: StandaloneProcess, tmp_path: Path) -> None:
    """F141, F151: whoever may come in, a proxy leads to brokers only; who says nothing is let go."""
    strict = ProxyProcess(
        tmp_path,
        standalone.service_url,
        standalone.web_url,
        brokerProxyAllowedTargetPorts=f"6650,{standalone.port}",
        brokerProxyAllowedIPAddresses="127.0.0.0/8",
        keepAliveIntervalSeconds="1",
        maxConcurrentInboundConnectionsPerIp="3",
    )
    with running(strict):
        for target, reason in (
            ("127.0.0.1:9999", "Port 9999"),
            ("192.0.2.1:6650", "at an address"),
            ("nonsense", "not a broker's address"),
        ):
            client = Wire(strict.port, proxy_to_broker_url=target)
            error = client.command().error
            assert error.error == pb.AuthorizationError
            assert reason in error.message
            assert client.socket.recv(1) == b""
        client = Wire(strict.port, proxy_to_broker_url=f"127.0.0.1:{standalone.port}")
        assert client.command().connected.server_version.startswith("Magnetar")
        # Who never says anything is cut off, and one address may not take every place.
        silent = [called(strict.port) for _ in range(2)]
        beyond = called(strict.port)
        assert refused(beyond)
        assert all(refused(each) for each in silent)


def refused(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


# --- who a client is ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStandalone]:
    with GuardedStandalone(
        tmp_path_factory.mktemp("guarded"),
        superUserRoles="localhost,superUser,admin,proxy",
        anonymousUserRole="",
        authenticateOriginalAuthData="false",
    ) as process:
        process.furnish()
        yield process


def guarded_proxy(directory: Path, broker: GuardedStandalone, **settings: str) -> ProxyProcess:
    return ProxyProcess(
        directory,
        broker.service_url,
        broker.web_url,
        authenticationEnabled="true",
        authenticationProviders="token",
        tokenSecretKey="data:;base64," + base64.b64encode(SECRET).decode(),
        brokerClientAuthenticationPlugin="org.apache.pulsar.client.impl.auth.AuthenticationToken",
        brokerClientAuthenticationParameters=f"token:{token('proxy')}",
        **settings,
    )


def produce_as(proxy: ProxyProcess, role: str | None, topic: str) -> None:
    authentication = pulsar.AuthenticationToken(token(role)) if role else None
    client = pulsar.Client(proxy.service_url, authentication=authentication, logger=QUIET, operation_timeout_seconds=5)
    try:
        exchange(client, topic, 1)
    finally:
        client.close()


ALLOWED = "persistent://private/auth/through"


def check_websockets(proxy: ProxyProcess) -> None:
    """A proxy serves them itself: it finds out who calls, and brokers say what they may."""
    path = "persistent/private/auth/socket"
    headers = {role: {"Authorization": f"Bearer {token(role)}"} for role in ("admin", "stranger")}
    # A word of the client's own about whom it speaks for is not heard.
    headers["stranger"]["X-Original-Principal"] = "admin"
    with (
        opened(proxy.web_url, f"/ws/v2/reader/{path}?messageId=earliest", headers["admin"]) as reading,
        opened(proxy.web_url, f"/ws/v2/producer/{path}", headers["admin"]) as producing,
    ):
        say(producing, payload=sent("through"))
        assert heard(producing)["result"] == "ok"
        assert payload_of(heard(reading)) == b"through"
    assert refusal(proxy.web_url, f"/ws/v2/producer/{path}", headers["stranger"])[0] == 403
    assert refusal(proxy.web_url, f"/ws/v2/producer/{path}")[0] == 401


@pytest.mark.feature("F-SEC-06", "F-PH-10")
def test_the_broker_judges_the_client_and_not_only_the_proxy(guarded: GuardedStandalone, tmp_path: Path) -> None:
    """F148, F150: over every protocol that a proxy passes on, and for its own statistics."""
    asked_for_metrics = {"authenticateMetricsEndpoint": "true"}
    with running(guarded_proxy(tmp_path, guarded, webSocketServiceEnabled="true", **asked_for_metrics)) as proxy:
        check_websockets(proxy)
        bearer = {"Authorization": f"Bearer {token('stranger')}"}
        assert [ask("GET", f"{proxy.web_url}/metrics", headers=each).status_code for each in ({}, bearer)] == [401, 200]
        produce_as(proxy, "token-principal", ALLOWED)
        with pytest.raises(pulsar.AuthorizationError):
            produce_as(proxy, "stranger", ALLOWED)
        # The proxy itself asks who comes: without credentials nobody gets as far as a broker.
        client = Wire(proxy.port)
        assert client.command().error.error == pb.AuthenticationError
        forged = Wire(proxy.port, auth_method_name="token", auth_data=b"forged.token.here")
        assert forged.command().error.error == pb.AuthenticationError
        # Nor can a client name another role, over HTTP or the binary protocol.
        path = f"{proxy.web_url}/admin/v2/namespaces/private"
        header = {"Authorization": f"Bearer {token('stranger')}"}
        assert ask("GET", path, headers=header).status_code == 403
        assert ask("GET", path, headers={**header, "X-Original-Principal": "admin"}).status_code == 403
        assert ask("GET", path, headers={"X-Original-Principal": "admin"}).status_code == 401
        assert ask("GET", path, headers={"Authorization": f"Bearer {token('admin')}"}).status_code == 200
    assert token("token-principal") not in proxy.log_path.read_text()


@pytest.mark.feature("B-20")
def test_a_revoked_token_is_refused_by_the_proxy_too(guarded: GuardedStandalone, tmp_path: Path) -> None:
    revoked = tmp_path / "revoked"
    revoked.write_text("# nobody yet\n")
    own = {"MAGNETAR_SECURITY_TOKEN_REVOKED_FILE": str(revoked), "MAGNETAR_SECURITY_TOKEN_REVOKED_CHECK_S": "1"}

    with running(guarded_proxy(tmp_path / "proxy", guarded, **own)) as proxy:
        path = f"{proxy.web_url}/admin/v2/namespaces/private"
        header = {"Authorization": f"Bearer {token('admin')}"}
        assert ask("GET", path, headers=header).status_code == 200
        revoked.write_text("sub:admin\n")
        until_s = time.monotonic() + 60
        while ask("GET", path, headers=header).status_code != 401:
            assert time.monotonic() < until_s, "the list is not read again"
            time.sleep(0.1)
        forbidden = Wire(proxy.port, auth_method_name="token", auth_data=token("admin").encode())
        assert forbidden.command().error.error == pb.AuthenticationError


@pytest.mark.feature("F-SEC-06")
def test_credentials_go_along_only_where_the_proxy_is_told_to(tmp_path: Path) -> None:
    with GuardedStandalone(
        tmp_path / "broker", superUserRoles="admin,proxy", anonymousUserRole="", authenticateOriginalAuthData="true"
    ) as broker:
        broker.furnish()
        with running(guarded_proxy(tmp_path / "one", broker, forwardAuthorizationCredentials="true")) as forwarding:
            produce_as(forwarding, "token-principal", ALLOWED)
            header = {"Authorization": f"Bearer {token('admin')}"}
            assert ask("GET", f"{forwarding.web_url}/admin/v2/namespaces/private", headers=header).status_code == 200
        with (
            running(guarded_proxy(tmp_path / "two", broker)) as keeping,
            pytest.raises((pulsar.AuthenticationError, pulsar.ConnectError, pulsar.Timeout)),
        ):
            produce_as(keeping, "token-principal", ALLOWED)


@pytest.mark.feature("F-SEC-06")
def test_tls_on_both_sides(guarded: GuardedStandalone, tmp_path: Path) -> None:
    certificate, key = guarded.authority.sign("localhost", "proxy-door")
    own_certificate, own_key = guarded.authority.sign("proxy")
    tls_port = free_port()
    process = ProxyProcess(
        tmp_path,
        guarded.service_url,
        guarded.web_url,
        authenticationEnabled="true",
        authenticationProviders="tls",
        servicePortTls=str(tls_port),
        tlsCertificateFilePath=certificate,
        tlsKeyFilePath=key,
        tlsTrustCertsFilePath=str(guarded.authority.file),
        brokerServiceURLTLS=guarded.service_url_tls,
        brokerWebServiceURLTLS=guarded.web_url_tls,
        tlsEnabledWithBroker="true",
        brokerClientTrustCertsFilePath=str(guarded.authority.file),
        brokerClientAuthenticationPlugin="tls",
        brokerClientAuthenticationParameters=f"tlsCertFile:{own_certificate},tlsKeyFile:{own_key}",
    )
    with running(process):
        client = pulsar.Client(
            f"pulsar+ssl://localhost:{tls_port}",
            authentication=pulsar.AuthenticationTLS(*guarded.authority.sign("admin", "client-admin")),
            tls_trust_certs_file_path=str(guarded.authority.file),
            tls_validate_hostname=True,
            logger=QUIET,
        )
        try:
            exchange(client, "persistent://private/auth/encrypted", 3)
        finally:
            client.close()


def test_a_load_balancer_may_say_whom_it_speaks_for(standalone: StandaloneProcess, tmp_path: Path) -> None:
    settings = {"haProxyProtocolEnabled": "true", "security.haproxy_trusted": "127.0.0.1"}
    connect = pb.CommandConnect(client_version="wire", protocol_version=21, proxy_to_broker_url="nonsense")
    header = b"PROXY TCP4 192.0.2.7 192.0.2.8 4711 6650\r\n"
    with running(ProxyProcess(tmp_path, standalone.service_url, standalone.web_url, **settings)) as process:
        # With a header the client is the one it names; without one it is who called.
        for preamble in (header, b""):
            connection = called(process.port)
            connection.sendall(preamble + commands.encode(Type.CONNECT, connect))
            assert "not a broker's address" in read_command(connection, Sender.BROKER).error.message
            assert connection.recv(1) == b""
        said = process.log_path.read_text()
        assert said.count("192.0.2.7:4711") == 1
        assert "closing the connection of 127.0.0.1" in said


def test_clients_behind_a_load_balancer_are_counted_by_their_own_addresses(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    settings = {
        "haProxyProtocolEnabled": "true",
        "security.haproxy_trusted": "127.0.0.1",
        "maxConcurrentInboundConnectionsPerIp": "1",
    }
    connect = commands.encode(Type.CONNECT, pb.CommandConnect(client_version="wire", protocol_version=21))

    def greeted(client: str) -> socket.socket:
        connection = called(process.port)
        connection.sendall(f"PROXY TCP4 {client} 192.0.2.200 4711 6650\r\n".encode() + connect)
        return connection

    with running(ProxyProcess(tmp_path, standalone.service_url, standalone.web_url, **settings)) as process:
        welcome = [greeted("192.0.2.7"), greeted("192.0.2.8")]
        for each in welcome:
            assert read_command(each, Sender.BROKER).connected.server_version.startswith("Magnetar")
        assert refused(greeted("192.0.2.7"))


@pytest.mark.feature("F-PH-10")
def test_a_proxy_says_how_websockets_are_switched_on(proxy: ProxyProcess) -> None:
    status, reason = refusal(proxy.web_url, "/ws/v2/producer/persistent/public/default/t")
    assert (status, "webSocketServiceEnabled=true" in reason) == (404, True)
