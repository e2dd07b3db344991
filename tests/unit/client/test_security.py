# SPDX-License-Identifier: Apache-2.0
"""TLS and OAuth2 as the client does them, against servers of a few lines."""

import asyncio
import ipaddress
import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from magnetar import AuthenticationOauth2, AuthenticationTLS, AuthenticationToken, Client
from magnetar.errors import BadSetting, ConnectionLost, NotAuthenticated
from magnetar.runtime.clock import WallClock
from tests.conftest import run_without_leaks
from tests.unit.client.fake_broker import FakeBroker

TOPIC = "persistent://public/default/t"


class Certificate:
    def __init__(self, directory: Path, host: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        now = datetime.now(UTC)
        alternatives: list[x509.GeneralName] = [x509.DNSName(host), x509.IPAddress(ipaddress.ip_address("127.0.0.9"))]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, SHA256())
        )
        self.path = directory / f"{host}.cert.pem"
        self.key_path = directory / f"{host}.key.pem"
        self.path.write_bytes(certificate.public_bytes(Encoding.PEM))
        self.key_path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key_path)
        return context


def run(test: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await test

    run_without_leaks(limited(), asyncio.new_event_loop)


def test_a_certificate_that_is_trusted_and_fits_the_name(tmp_path: Path) -> None:
    certificate = Certificate(tmp_path, "localhost")

    async def test() -> None:
        async with (
            FakeBroker(tls=certificate.server()) as broker,
            Client(
                broker.url,
                AuthenticationTLS(str(certificate.path), str(certificate.key_path)),
                tls_trust_certs_file_path=str(certificate.path),
            ) as client,
        ):
            await (await client.create_producer(TOPIC)).send(b"x")
            assert broker.contents(TOPIC) == [b"x"]

    run(test())


@pytest.mark.parametrize(
    ("host", "trusted", "settings", "works"),
    [
        ("localhost", False, {}, False),
        ("elsewhere", True, {}, False),
        ("elsewhere", True, {"tls_validate_hostname": False}, True),
        ("elsewhere", False, {"tls_allow_insecure_connection": True}, True),
    ],
)
def test_other_certificates_are_refused_unless_told_otherwise(
    tmp_path: Path, host: str, trusted: bool, settings: dict[str, Any], works: bool
) -> None:
    certificate = Certificate(tmp_path, host)
    if trusted:
        settings = {**settings, "tls_trust_certs_file_path": str(certificate.path)}

    async def test() -> None:
        async with FakeBroker(tls=certificate.server()) as broker:
            client = Client(broker.url, operation_timeout_seconds=0.1, initial_backoff_ms=200, **settings)
            if works:
                await client.create_producer(TOPIC)
            else:
                with pytest.raises(ConnectionLost, match="certificate"):
                    await client.create_producer(TOPIC)
            await client.close()

    run(test())


def test_no_credentials_go_to_a_server_of_another_name(tmp_path: Path) -> None:
    """F127: the certificate is of an authority that is trusted, and of another host."""
    elsewhere, here = Certificate(tmp_path, "elsewhere"), Certificate(tmp_path, "localhost")

    async def heard(certificate: Certificate) -> list[str]:
        async with FakeBroker(tls=certificate.server()) as broker:
            client = Client(
                broker.url,
                AuthenticationToken("a secret"),
                tls_trust_certs_file_path=str(certificate.path),
                operation_timeout_seconds=0.1 if certificate is elsewhere else 30,
                initial_backoff_ms=200,
            )
            if certificate is elsewhere:
                with pytest.raises(ConnectionLost, match="certificate"):
                    await client.create_producer(TOPIC)
            else:
                await client.create_producer(TOPIC)
            await client.close()
            return list(broker.log)

    async def test() -> None:
        assert not await heard(elsewhere)
        assert await heard(here)

    run(test())


def test_missing_files_are_named_at_once() -> None:
    with pytest.raises(BadSetting, match="TLS"):
        Client("pulsar+ssl://a", tls_trust_certs_file_path="/nowhere/ca.pem")


class Clock(WallClock):
    def __init__(self) -> None:
        self.time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms


class Issuer:
    """Answers the two requests of the client-credentials flow."""

    def __init__(self) -> None:
        self.forms: list[dict[str, list[str]]] = []
        self.refuses = False
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = b""
        for line in head.split("\r\n"):
            if line.lower().startswith("content-length:"):
                body = await reader.readexactly(int(line.partition(":")[2]))
        if head.startswith("GET /.well-known/openid-configuration"):
            answer: dict[str, Any] = {"token_endpoint": f"{self.url}/token"}
        else:
            self.forms.append(parse_qs(body.decode()))
            answer = {"access_token": f"token-{len(self.forms)}", "expires_in": 100}
        status = "401 Unauthorized" if self.refuses else "200 OK"
        text = json.dumps(answer)
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
        await writer.drain()
        writer.close()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key.json"
    path.write_text(json.dumps({"client_id": "me", "client_secret": "s3cret"}))
    return path


def test_tokens_are_bought_and_renewed(key_file: Path) -> None:
    async def test() -> None:
        issuer, clock = Issuer(), Clock()
        server = await asyncio.start_server(issuer.serve, "127.0.0.1", 0)
        issuer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        parameters = {"issuer_url": issuer.url, "private_key": f"file://{key_file}", "audience": "pulsar"}
        authentication = AuthenticationOauth2(json.dumps(parameters), clock=clock)
        assert await authentication.credentials() == b"token-1"
        clock.time_ms = 80_000
        assert await authentication.credentials() == b"token-1"
        clock.time_ms = 91_000
        assert await authentication.credentials() == b"token-2"
        assert issuer.forms[0]["client_id"] == ["me"]
        assert issuer.forms[0]["audience"] == ["pulsar"]
        issuer.refuses = True
        clock.time_ms = 10**9
        with pytest.raises(NotAuthenticated, match="401"):
            await authentication.credentials()
        server.close()
        await server.wait_closed()

    run(test())


def test_a_key_that_lacks_something_is_refused() -> None:
    with pytest.raises(BadSetting, match="client_id"):
        AuthenticationOauth2({"issuer_url": "http://a"})
    with pytest.raises(BadSetting, match="key file"):
        AuthenticationOauth2({"issuer_url": "http://a", "private_key": "data:application/json,nonsense"})
