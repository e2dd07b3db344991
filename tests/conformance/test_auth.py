# SPDX-License-Identifier: Apache-2.0
"""Who gets in and who may do what, over the wire and over HTTP, with the official client and without."""

import base64
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import jwt
import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.guarded import PASSWORD, SECRET, GuardedStandalone, expiring, token
from tests.conformance.raw import RawClient, Type

TOPIC = "persistent://private/auth/t"
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStandalone]:
    with GuardedStandalone(tmp_path_factory.mktemp("guarded"), authenticationRefreshCheckSeconds="2") as running:
        running.furnish()
        yield running


class Raw(RawClient):
    """Connects by hand, so that a refusal can be seen."""

    opened: ClassVar[list["Raw"]] = []

    def __init__(self, port: int, **fields: Any) -> None:
        self.fields = fields
        self.opened.append(self)
        super().__init__(port)

    def send(self, kind: "pb.BaseCommand.Type.ValueType", command: Any) -> None:
        if kind == Type.CONNECT:
            for name, value in self.fields.items():
                if name == "can_refresh":
                    command.feature_flags.supports_auth_refresh = value
                else:
                    setattr(command, name, value)
        super().send(kind, command)

    def expect(self, field: str) -> Any:
        if field == "connected":
            command, _ = self.receive()
            self.refusal = None if command.HasField("connected") else command.error
            return command
        return super().expect(field)


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while Raw.opened:
        Raw.opened.pop().__exit__(None, None, None)


def as_role(standalone: GuardedStandalone, role: str, **fields: Any) -> Raw:
    return Raw(standalone.port, auth_method_name="token", auth_data=token(role).encode(), **fields)


def open_producer(client: Raw, topic: str, **fields: Any) -> Any:
    request = pb.CommandProducer(topic=topic, producer_id=7, request_id=client.next_request(), **fields)
    client.send(Type.PRODUCER, request)
    command, _ = client.receive()
    return command.producer_success if command.HasField("producer_success") else command.error


def send_and_receive(url: str, topic: str, authentication: Any = None, **options: Any) -> None:
    client = pulsar.Client(url, authentication=authentication, logger=QUIET, operation_timeout_seconds=10, **options)
    try:
        consumer = client.subscribe(topic, f"s-{time.monotonic_ns()}")
        client.create_producer(topic).send(b"hello")
        assert consumer.receive(10_000).data() == b"hello"
    finally:
        client.close()


# --- who ----------------------------------------------------------------------------------------------


@pytest.mark.feature("F-SEC-01")
def test_a_token_opens_over_http_and_over_the_wire(standalone: GuardedStandalone) -> None:
    for url in (standalone.web_url, standalone.service_url):
        send_and_receive(url, TOPIC, pulsar.AuthenticationToken(token("token-principal")))


@pytest.mark.feature("F-SEC-01")
def test_a_password_opens_over_http_and_over_the_wire(standalone: GuardedStandalone) -> None:
    for url in (standalone.web_url, standalone.service_url):
        send_and_receive(url, TOPIC, pulsar.AuthenticationBasic("admin", PASSWORD))


def test_without_credentials_a_client_is_anonymous(standalone: GuardedStandalone) -> None:
    send_and_receive(standalone.service_url, "public-topic")
    with pytest.raises(pulsar.AuthorizationError):
        send_and_receive(standalone.service_url, TOPIC)


def test_an_unknown_method_is_anonymous_too(standalone: GuardedStandalone) -> None:
    client = Raw(standalone.port, auth_method_name="unknown", auth_data=b"x")
    assert client.refusal is None
    assert open_producer(client, TOPIC).error == pb.AuthorizationError
    assert open_producer(client, "public-topic").producer_name


def forged(kind: str) -> bytes:
    header = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(b'{"sub":"admin"}').rstrip(b"=")
    return {
        "unsigned": header + b"." + body + b".",
        "without signature": token("admin").rpartition(".")[0].encode() + b".",
        "another key": jwt.encode({"sub": "admin"}, b"x" * 32, algorithm="HS256").encode(),
        "expired": expiring("admin", -10).encode(),
        "not yet": token("admin", nbf=time.time() + 1000).encode(),
        "no role": jwt.encode({"iss": "x"}, SECRET, algorithm="HS256").encode(),
        "a list as time": token("admin", exp=[1]).encode(),
        "huge": b"a" * 100_000,
        "nothing": b"",
        "not a token": b"\xff\x00 canary-of-the-token",
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "unsigned",
        "without signature",
        "another key",
        "expired",
        "not yet",
        "no role",
        "a list as time",
        "huge",
        "nothing",
        "not a token",
    ],
)
@pytest.mark.feature("F-SEC-01")
def test_a_wrong_token_is_refused_once_and_the_connection_ends(standalone: GuardedStandalone, kind: str) -> None:
    client = Raw(standalone.port, auth_method_name="token", auth_data=forged(kind))
    assert client.refusal is not None
    assert client.refusal.error == pb.AuthenticationError
    with pytest.raises(ConnectionError):
        client.receive()


@pytest.mark.parametrize("data", [b"admin:wrong", b"nobody:" + PASSWORD.encode(), b"admin", b"\xff:\xff"])
def test_a_wrong_password_is_refused(standalone: GuardedStandalone, data: bytes) -> None:
    client = Raw(standalone.port, auth_method_name="basic", auth_data=data)
    assert client.refusal is not None
    assert client.refusal.error == pb.AuthenticationError
    answer = httpx.get(
        f"{standalone.web_url}/admin/v2/clusters", headers={"Authorization": f"Basic {base64.b64encode(data).decode()}"}
    )
    assert answer.status_code == 401


def test_nothing_is_served_before_the_credentials_are_checked(standalone: GuardedStandalone) -> None:
    client = Raw(standalone.port, auth_method_name="token", auth_data=b"wrong")
    with pytest.raises((ConnectionError, OSError)):
        open_producer(client, "public-topic")


# --- while it lasts -----------------------------------------------------------------------------------


def test_credentials_that_run_out_are_renewed(standalone: GuardedStandalone) -> None:
    client = Raw(standalone.port, auth_method_name="token", auth_data=expiring("admin", 1).encode(), can_refresh=True)
    challenge = client.expect("authChallenge")
    assert (challenge.challenge.auth_method_name, challenge.challenge.auth_data) == ("token", b"PulsarAuthRefresh")
    response = pb.CommandAuthResponse(client_version="raw", protocol_version=21)
    response.response.auth_method_name = "token"
    response.response.auth_data = token("admin").encode()
    client.send(Type.AUTH_RESPONSE, response)
    client.quiet()
    assert open_producer(client, TOPIC).producer_name


@pytest.mark.parametrize("renewal", [None, "other role", "expired"])
def test_who_does_not_renew_is_let_go(standalone: GuardedStandalone, renewal: str | None) -> None:
    client = Raw(standalone.port, auth_method_name="token", auth_data=expiring("admin", 1).encode(), can_refresh=True)
    client.expect("authChallenge")
    if renewal is not None:
        data = token("superUser") if renewal == "other role" else expiring("admin", -5)
        response = pb.CommandAuthResponse(client_version="raw", protocol_version=21)
        response.response.auth_method_name = "token"
        response.response.auth_data = data.encode()
        client.send(Type.AUTH_RESPONSE, response)
    assert client.expect("error").error in (pb.AuthenticationError, pb.ServiceNotReady)
    with pytest.raises(ConnectionError):
        client.receive()


def test_a_client_that_cannot_renew_is_let_go_at_once(standalone: GuardedStandalone) -> None:
    client = Raw(standalone.port, auth_method_name="token", auth_data=expiring("admin", 1).encode())
    assert client.expect("error").error == pb.AuthenticationError


def test_the_official_client_renews_by_itself(standalone: GuardedStandalone) -> None:
    asked = []

    def supply() -> str:
        asked.append(1)
        return expiring("token-principal", 2)

    client = pulsar.Client(standalone.service_url, authentication=pulsar.AuthenticationToken(supply), logger=QUIET)
    producer = client.create_producer(TOPIC)
    while len(asked) < 3:
        producer.send(b"still here")
        time.sleep(0.05)
    assert producer.is_connected()
    client.close()


# --- what ---------------------------------------------------------------------------------------------


@pytest.mark.feature("F-SEC-02")
@pytest.mark.parametrize(
    ("role", "produces", "consumes", "looks"),
    [
        ("admin", True, True, True),
        ("token-principal", True, True, True),
        ("producer", True, False, True),
        ("consumer", False, True, True),
        ("stranger", False, False, False),
        ("owner", False, False, False),
    ],
)
def test_each_role_does_what_it_was_granted(
    standalone: GuardedStandalone, role: str, produces: bool, consumes: bool, looks: bool
) -> None:
    client = as_role(standalone, role)
    assert (open_producer(client, TOPIC).DESCRIPTOR.name == "CommandProducerSuccess") is produces
    answer = client.subscribe(TOPIC, f"sub-{role}")
    assert (answer.DESCRIPTOR.name == "CommandSuccess") is consumes
    client.send(Type.LOOKUP, pb.CommandLookupTopic(topic=TOPIC, request_id=client.next_request()))
    found = client.expect("lookupTopicResponse")
    assert (found.response == pb.CommandLookupTopicResponse.Connect) is looks
    listing = pb.CommandGetTopicsOfNamespace(request_id=client.next_request(), namespace="private/auth")
    client.send(Type.GET_TOPICS_OF_NAMESPACE, listing)
    command, _ = client.receive()
    assert command.HasField("getTopicsOfNamespaceResponse") is looks


def test_a_producer_without_consume_brings_no_subscription(standalone: GuardedStandalone) -> None:
    client = as_role(standalone, "producer")
    refused = open_producer(client, TOPIC, initial_subscription_name="mine")
    assert refused.error == pb.AuthorizationError


@pytest.mark.feature("F-SEC-02")
def test_a_grant_holds_at_once_and_ends_when_revoked(standalone: GuardedStandalone) -> None:
    path = "/persistent/private/auth/granted/permissions/guest"
    topic = "persistent://private/auth/granted"
    with standalone.admin() as admin:
        assert open_producer(as_role(standalone, "guest"), topic).error == pb.AuthorizationError
        assert admin.post(path, json=["produce"]).status_code == 204
        assert open_producer(as_role(standalone, "guest"), topic).producer_name
        assert open_producer(as_role(standalone, "guest"), TOPIC).error == pb.AuthorizationError
        assert admin.delete(path).status_code == 204
        assert open_producer(as_role(standalone, "guest"), topic).error == pb.AuthorizationError


def test_a_subscription_granted_to_a_role_is_its_alone(standalone: GuardedStandalone) -> None:
    with standalone.admin() as admin:
        path = "/namespaces/private/auth/permissions/subscription/theirs"
        assert admin.post(path, json=["consumer"]).status_code == 204
    assert as_role(standalone, "token-principal").subscribe(TOPIC, "theirs").error == pb.AuthorizationError
    assert as_role(standalone, "consumer").subscribe(TOPIC, "theirs").DESCRIPTOR.name == "CommandSuccess"


# --- proxies ------------------------------------------------------------------------------------------


def test_only_a_proxy_speaks_for_another(standalone: GuardedStandalone) -> None:
    """F148: over the binary protocol; nor may it be silent about it, or name a proxy."""
    refused = as_role(standalone, "token-principal", original_principal="admin").refusal
    assert refused is not None
    assert refused.error == pb.AuthorizationError
    for original in ("", "proxy"):
        assert as_role(standalone, "proxy", original_principal=original).refusal is not None


def test_behind_a_proxy_both_must_be_allowed(standalone: GuardedStandalone) -> None:
    """F148: neither role lends the other what it may not do itself."""
    through = as_role(standalone, "proxy", original_principal="token-principal")
    assert through.refusal is None
    assert open_producer(through, TOPIC).error == pb.AuthorizationError
    with standalone.admin() as admin:
        admin.post("/namespaces/private/auth/permissions/proxy", json=["produce", "consume"])
    assert open_producer(as_role(standalone, "proxy", original_principal="token-principal"), TOPIC).producer_name
    stranger = as_role(standalone, "proxy", original_principal="stranger")
    assert open_producer(stranger, TOPIC).error == pb.AuthorizationError


# --- administration -----------------------------------------------------------------------------------


@pytest.mark.feature("F-SEC-02")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/tenants", {"admin"}),
        ("GET", "/tenants/owned", {"admin"}),
        ("PUT", "/clusters/standalone", {"admin"}),
        ("GET", "/brokers/health", {"admin"}),
        ("GET", "/brokers/configuration/runtime", {"admin"}),
        ("GET", "/namespaces/owned", {"admin", "owner"}),
        ("GET", "/namespaces/owned/space", {"admin", "owner"}),
        ("GET", "/namespaces/owned/space/retention", {"admin", "owner"}),
        ("POST", "/namespaces/owned/space/publishRate", {"admin"}),
        ("GET", "/namespaces/private/auth/topics", {"admin", "producer", "consumer", "token-principal"}),
        ("GET", "/namespaces/private/auth/permissions", {"admin"}),
        ("GET", "/persistent/private/auth/t/stats", {"admin", "producer", "consumer", "token-principal"}),
        ("GET", "/persistent/private/auth/t/subscriptions", {"admin", "consumer", "token-principal"}),
        ("PUT", "/persistent/private/auth/t/unload", {"admin"}),
        ("DELETE", "/persistent/private/auth/none", {"admin"}),
        ("POST", "/persistent/private/auth/t/retention", {"admin"}),
        ("GET", "/clusters", {"admin", "owner", "producer", "consumer", "token-principal", "stranger", None}),
        ("GET", "/namespaces/public", {"admin", None}),
    ],
)
def test_each_role_administers_what_it_may(
    standalone: GuardedStandalone, method: str, path: str, allowed: set[str | None]
) -> None:
    for role in ("admin", "owner", "producer", "consumer", "token-principal", "stranger", None):
        with standalone.admin(role) as admin:
            answer = admin.request(method, path)
        assert (answer.status_code != 403) is (role in allowed), f"{role}: {answer.status_code} {answer.text}"
        assert answer.status_code != 401


def test_metrics_and_readiness_ask_nobody(standalone: GuardedStandalone) -> None:
    for path in ("/metrics", "/status.html", "/admin/v2/brokers/ready", "/admin/v2/brokers/version"):
        assert httpx.get(standalone.web_url + path).status_code == 200


def test_no_header_lends_another_role(standalone: GuardedStandalone) -> None:
    """F148: whoever is no proxy is asked for its own role alone."""
    for role in (None, "stranger"):
        with standalone.admin(role) as admin:
            assert admin.get("/tenants", headers={"X-Original-Principal": "admin"}).status_code == 403
            assert admin.get("/tenants", headers={"X-Pulsar-Auth-Role": "admin"}).status_code == 403


def test_an_id_of_another_tenants_message_opens_nothing(standalone: GuardedStandalone) -> None:
    """F147: a topic that one may read opens no ledger of another."""
    send_and_receive(standalone.service_url, TOPIC, pulsar.AuthenticationToken(token("token-principal")))
    send_and_receive(standalone.service_url, "public-topic")
    with standalone.admin() as admin:
        ledgers = admin.get("/persistent/private/auth/t/internalStats").json()["ledgers"]
    with standalone.admin(None) as anonymous:
        for ledger in ledgers:
            path = f"/persistent/public/default/public-topic/ledger/{ledger['ledgerId']}/entry/0"
            answer = anonymous.get(path)
            assert answer.status_code in (404, 412), answer.text
            assert b"hello" not in answer.content
            private = f"/persistent/private/auth/t/ledger/{ledger['ledgerId']}/entry/0"
            assert anonymous.get(private).status_code == 403


# --- secrets ------------------------------------------------------------------------------------------


def test_no_secret_is_in_a_log_an_answer_or_a_metric(standalone: GuardedStandalone) -> None:
    """F154: keys, passwords and tokens, good and bad, after everything that this module did with them."""
    secrets = [SECRET.decode(), base64.b64encode(SECRET).decode(), PASSWORD, token("admin"), "canary-of-the-token"]
    with standalone.admin() as admin:
        told = [
            admin.get("/brokers/configuration/runtime").text,
            admin.get("/persistent/private/auth/t/stats").text,
            httpx.get(f"{standalone.web_url}/metrics").text,
            standalone.log_path.read_text(),
        ]
    assert [secret for secret in secrets for text in told if secret in text] == []


@pytest.mark.feature("B-20")
def test_a_revoked_token_ends_its_sessions(tmp_path: Path) -> None:
    """Over HTTP at the next request; a connection that is open is let go at the next check."""
    revoked = tmp_path / "revoked"
    revoked.write_text("# nobody yet\n")
    settings = {
        "security.token_revoked_file": str(revoked),
        "security.token_revoked_check_s": "1",
        "authenticationRefreshCheckSeconds": "1",
    }
    with GuardedStandalone(tmp_path / "guarded", **settings) as guarded:
        with guarded.admin() as admin:
            assert admin.get("/tenants").status_code == 200
        client = as_role(guarded, "admin")
        assert client.refusal is None
        other = as_role(guarded, "superUser")
        revoked.write_text("sub:admin\n")
        assert client.expect("error").error == pb.AuthenticationError
        with pytest.raises(ConnectionError):
            client.receive()
        with guarded.admin() as admin:
            assert admin.get("/tenants").status_code == 401
        other.quiet()


@pytest.mark.feature("F-SEC-02")
def test_a_withdrawn_permission_closes_what_is_open(standalone: GuardedStandalone) -> None:
    """Soon, and only what needed it: who was granted more keeps the rest, and others notice nothing."""
    with standalone.admin() as admin:
        for role in ("guest", "neighbour"):
            admin.post(f"/namespaces/private/auth/permissions/{role}", json=["produce", "consume"])
        guest, neighbour = as_role(standalone, "guest"), as_role(standalone, "neighbour")
        for client in (guest, neighbour):
            assert open_producer(client, TOPIC).producer_name
            assert client.subscribe(TOPIC, f"open-{id(client)}").DESCRIPTOR.name == "CommandSuccess"
        admin.post("/namespaces/private/auth/permissions/guest", json=["consume"])
        assert guest.expect("close_producer").producer_id == 7
        assert open_producer(guest, TOPIC).error == pb.AuthorizationError
        admin.delete("/namespaces/private/auth/permissions/guest")
        guest.expect("close_consumer")
        neighbour.quiet()
        stats = admin.get("/persistent/private/auth/t/stats").json()
    assert len(stats["publishers"]) == 1
    assert stats["subscriptions"][f"open-{id(guest)}"]["consumers"] == []
    assert len(stats["subscriptions"][f"open-{id(neighbour)}"]["consumers"]) == 1


@pytest.mark.feature("F-SEC-03")
def test_the_command_line_takes_plug_in_and_parameters_from_client_conf(
    standalone: GuardedStandalone, tmp_path: Path
) -> None:
    conf = tmp_path / "client.conf"
    plain = f"webServiceUrl={standalone.web_url}/\nbrokerServiceUrl={standalone.service_url}/\n"
    plug_in = "authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken\n"
    environment = {**os.environ, "MAGNETAR_CONTEXTS": str(tmp_path / "contexts.json"), "PULSAR_CLIENT_CONF": str(conf)}
    command = [sys.executable, "-m", "magnetar.cli.entry", "admin", "tenants", "list"]

    def listed() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

    conf.write_text(plain + plug_in + f"authParams=token:{token('admin')}\n")
    allowed = listed()
    assert allowed.returncode == 0, allowed.stderr
    assert "private" in allowed.stdout
    conf.write_text(plain + plug_in + "authParams=token:canary.of.nothing\n")
    refused = listed()
    assert refused.returncode != 0
    assert "private" not in refused.stdout
    assert "canary" not in refused.stderr
    conf.write_text(plain)
    anonymous = listed()
    assert anonymous.returncode != 0
    assert "Traceback" not in anonymous.stderr
