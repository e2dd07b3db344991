# SPDX-License-Identifier: Apache-2.0
"""TLS on both ports: who is believed, who is refused, and certificates that change while it runs."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pulsar
import pytest

from magnetar import AuthenticationToken
from magnetar.blocking import Client
from magnetar.wire import commands
from magnetar.wire.commands import Sender
from magnetar.wire.frame import FrameCutter
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.certificates import Authority
from tests.conformance.guarded import PASSWORD, GuardedStandalone, token
from tests.conformance.test_auth import QUIET, TOPIC, send_and_receive
from tests.processes import StandaloneProcess


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStandalone]:
    with GuardedStandalone(
        tmp_path_factory.mktemp("tls"), tlsCertRefreshCheckDurationSec="1", keepAliveIntervalSeconds="1"
    ) as running:
        running.furnish()
        yield running


def trusting(standalone: GuardedStandalone) -> dict[str, Any]:
    return {"tls_trust_certs_file_path": str(standalone.authority.file), "tls_validate_hostname": True}


def https(standalone: GuardedStandalone, certificate: tuple[str, str] | None = None) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(standalone.authority.file))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return httpx.Client(base_url=f"{standalone.web_url_tls}/admin/v2", verify=context, timeout=30)


@pytest.mark.feature("F-SEC-09")
def test_a_certificate_is_a_role(standalone: GuardedStandalone) -> None:
    certificate = standalone.authority.sign("admin")
    send_and_receive(standalone.service_url_tls, TOPIC, pulsar.AuthenticationTLS(*certificate), **trusting(standalone))
    stranger = standalone.authority.sign("stranger")
    with pytest.raises(pulsar.AuthorizationError):
        send_and_receive(standalone.service_url_tls, TOPIC, pulsar.AuthenticationTLS(*stranger), **trusting(standalone))


@pytest.mark.feature("F-SEC-09")
def test_tls_needs_no_certificate_of_the_client(standalone: GuardedStandalone) -> None:
    send_and_receive(standalone.service_url_tls, "over-tls", **trusting(standalone))
    basic = pulsar.AuthenticationBasic("admin", PASSWORD)
    send_and_receive(standalone.service_url_tls, TOPIC, basic, **trusting(standalone))


def test_a_closed_client_of_ours_leaves_no_socket(standalone: GuardedStandalone) -> None:
    def sockets() -> int:
        return len(psutil.Process().net_connections("tcp"))

    before = sockets()
    for _ in range(3):
        token_of = AuthenticationToken(token("admin"))
        with Client(standalone.service_url_tls, authentication=token_of, **trusting(standalone)) as client:
            client.create_producer(TOPIC).send(b"x")
            assert sockets() > before
        assert sockets() == before


@pytest.mark.feature("F-SEC-09")
def test_a_client_that_does_not_believe_us_does_not_connect(standalone: GuardedStandalone, tmp_path: Path) -> None:
    other = Authority(tmp_path, "another authority")
    client = pulsar.Client(
        standalone.service_url_tls,
        tls_trust_certs_file_path=str(other.file),
        logger=QUIET,
        operation_timeout_seconds=3,
    )
    with pytest.raises((pulsar.ConnectError, pulsar.Timeout)):
        client.create_producer("over-tls")
    client.close()


def test_a_certificate_of_another_authority_is_refused(standalone: GuardedStandalone, tmp_path: Path) -> None:
    forged = Authority(tmp_path, "test authority").sign("admin")
    with https(standalone, forged) as client, pytest.raises(httpx.TransportError):
        client.get("/clusters")


@pytest.mark.feature("F-SEC-09")
def test_https_knows_roles_by_certificate_and_by_token(standalone: GuardedStandalone) -> None:
    with https(standalone, standalone.authority.sign("admin")) as client:
        assert client.get("/tenants").status_code == 200
        stranger = {"Authorization": f"Bearer {token('stranger')}"}
        assert client.get("/tenants", headers=stranger).status_code == 403
    with https(standalone) as client:
        assert client.get("/tenants").status_code == 403
        assert client.get("/tenants", headers={"Authorization": f"Bearer {token('admin')}"}).status_code == 200


def test_lookups_over_https_name_the_port_with_tls(standalone: GuardedStandalone) -> None:
    with https(standalone) as client:
        found = client.get(f"{standalone.web_url_tls}/lookup/v2/topic/persistent/public/default/t").json()
    assert found["brokerUrlTls"].endswith(f":{standalone.tls_port}")
    assert found["httpUrlTls"].endswith(f":{standalone.https_port}")
    send_and_receive(standalone.web_url_tls, "over-https", **trusting(standalone))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:.*TLSVersion.*:DeprecationWarning")
def test_old_versions_are_refused(standalone: GuardedStandalone, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(standalone.authority.file))
    context.minimum_version = version
    context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(("127.0.0.1", standalone.tls_port), timeout=10) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="localhost")


def test_a_changed_certificate_is_taken_up(standalone: GuardedStandalone) -> None:
    before = presented(standalone)
    standalone.authority.sign("localhost")
    while presented(standalone) == before:
        pass
    send_and_receive(standalone.service_url_tls, "over-tls", **trusting(standalone))


def presented(standalone: GuardedStandalone) -> str:
    return ssl.get_server_certificate(("127.0.0.1", standalone.tls_port), timeout=10)


def test_who_connects_and_does_not_say_so_is_cut_off(standalone: GuardedStandalone) -> None:
    for port in (standalone.port, standalone.tls_port):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as silent:
            # The beginning of a frame that never ends.
            silent.sendall(b"\0\0\0")
            with contextlib.suppress(ConnectionResetError):
                assert silent.recv(1) == b""


def test_without_its_files_it_does_not_start(tmp_path: Path) -> None:
    settings = {"brokerServicePortTls": "0", "tlsCertificateFilePath": "/nowhere", "tlsKeyFilePath": "/nowhere"}
    process = StandaloneProcess(tmp_path, environment=settings)
    with pytest.raises(AssertionError, match="tlsCertificateFilePath=/nowhere"):
        process.start()


def _records(standalone: GuardedStandalone, words: list[bytes], written: int) -> Iterator[bytes]:
    """What a client sends that says these words over TLS, `written` bytes in a record; to be told what comes back."""
    context = ssl.create_default_context(cafile=str(standalone.authority.file))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", standalone.tls_port), timeout=20) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                incoming.write(raw.recv(65_536))
        # Who is asked who it is waits for the answer before it says more.
        for said in (words[0], b"".join(words[1:])):
            for start in range(0, len(said), written):
                tls.write(said[start : start + written])
            for byte in outgoing.read():
                raw.sendall(bytes((byte,)))
            yield _read(tls, incoming, raw)
        while True:
            yield _read(tls, incoming, raw)


def _read(tls: ssl.SSLObject, incoming: ssl.MemoryBIO, raw: socket.socket) -> bytes:
    while True:
        try:
            return tls.read(65_536)
        except ssl.SSLWantReadError:
            data = raw.recv(65_536)
            assert data, "the broker closed the connection"
            incoming.write(data)


@pytest.mark.parametrize("written", [1, 7, 100_000])
def test_however_records_and_segments_are_cut_every_word_is_heard_once(
    standalone: GuardedStandalone, written: int
) -> None:
    """F126: a byte in each record, or everything in one; and of all that a byte in each segment."""
    questions = [
        commands.encode(
            pb.BaseCommand.LOOKUP, pb.CommandLookupTopic(topic=f"persistent://public/default/cut-{n}", request_id=n)
        )
        for n in range(5)
    ]
    connect = commands.encode(pb.BaseCommand.CONNECT, pb.CommandConnect(client_version="raw", protocol_version=21))
    cutter, heard = FrameCutter(65_536), list[pb.BaseCommand]()
    for data in _records(standalone, [connect, *questions], written):
        heard += [commands.parse(command, Sender.BROKER) for command, _ in cutter.feed(data)]
        if len(heard) >= 6:
            break
    assert heard[0].HasField("connected")
    assert sorted(each.lookupTopicResponse.request_id for each in heard[1:6]) == list(range(5))
