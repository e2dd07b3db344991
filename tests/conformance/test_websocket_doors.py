# SPDX-License-Identifier: Apache-2.0
"""Who may open which WebSocket: every endpoint as every role, against the rules of the binary protocol; tokens that are
wrong, run out or are withdrawn; TLS.
"""

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from magnetar.broker.auth.command_rules import questions
from magnetar.broker.auth.grants import Need
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.cluster import RoleProcess
from tests.conformance.guarded import SECRET, GuardedStandalone, expiring, token
from tests.conformance.web_socket import end_of, heard, opened, opened_over_tls, payload_of, refusal, say, sent
from tests.processes import free_port

SPACE = "persistent/owned/space"
TOPIC = "persistent://owned/space/walked"
# What each may do, beside the two that may do everything.
GRANTED = {"writer": ["produce"], "taker": ["consume"], "both": ["produce", "consume"]}
ROLES = ("admin", "owner", *GRANTED, "stranger", None)
# Every endpoint, and the command of the binary protocol that it comes to.
ENDPOINTS: tuple[tuple[str, int, Any], ...] = (
    (f"/ws/v2/producer/{SPACE}/walked", pb.BaseCommand.PRODUCER, pb.CommandProducer(topic=TOPIC)),
    (f"/ws/v2/consumer/{SPACE}/walked/s", pb.BaseCommand.SUBSCRIBE, pb.CommandSubscribe(topic=TOPIC, subscription="s")),
    (f"/ws/v2/reader/{SPACE}/walked", pb.BaseCommand.SUBSCRIBE, pb.CommandSubscribe(topic=TOPIC)),
    (f"/ws/v3/consumer/t?topics={TOPIC}", pb.BaseCommand.SUBSCRIBE, pb.CommandSubscribe(topic=TOPIC)),
    (
        "/ws/v3/consumer/p?topicsPattern=persistent://owned/space/nothing.*",
        pb.BaseCommand.GET_TOPICS_OF_NAMESPACE,
        pb.CommandGetTopicsOfNamespace(namespace="owned/space"),
    ),
)
ALLOWED = {
    Need.PRODUCE: {"admin", "owner", "writer", "both"},
    Need.CONSUME: {"admin", "owner", "taker", "both"},
    Need.LIST: {"admin", "owner", "writer", "taker", "both"},
}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStandalone]:
    with GuardedStandalone(tmp_path_factory.mktemp("doors"), authenticationRefreshCheckSeconds="1") as running:
        running.furnish()
        with running.admin() as admin:
            for role, actions in GRANTED.items():
                answer = admin.post(f"/namespaces/owned/space/permissions/{role}", json=actions)
                assert answer.status_code == 204, answer.text
            assert admin.put(f"/{SPACE}/walked").status_code == 204
        yield running


def bearer(role: str | None) -> dict[str, str]:
    return {} if role is None else {"Authorization": f"Bearer {token(role)}"}


@pytest.mark.feature("F-SEC-02", "F-PH-10")
@pytest.mark.parametrize(("path", "kind", "command"), ENDPOINTS, ids=[path[:17] for path, _, _ in ENDPOINTS])
def test_every_endpoint_lets_in_whom_the_binary_protocol_would(
    standalone: GuardedStandalone, path: str, kind: int, command: Any
) -> None:
    ((need, _),) = questions(kind, command)
    for role in ROLES:
        try:
            with opened(standalone.web_url, path, bearer(role)):
                status = 101
        except InvalidStatus as error:
            status = error.response.status_code
        assert status == (101 if role in ALLOWED[need] else 403), (path, role)


@pytest.mark.feature("F-SEC-02")
def test_a_token_may_come_in_the_query_and_a_wrong_one_opens_nothing(standalone: GuardedStandalone) -> None:
    path = f"/ws/v2/producer/{SPACE}/walked"
    with opened(standalone.web_url, f"{path}?token={token('writer')}") as socket:
        say(socket, payload=sent("x"))
        assert heard(socket)["result"] == "ok"
    for query, headers in (
        ("?token=nonsense", {}),
        ("", {"Authorization": "Bearer nonsense"}),
        ("", {"Authorization": "Riddle me this"}),
        (f"?token={token('writer')}", {"Authorization": "Bearer nonsense"}),
    ):
        assert refusal(standalone.web_url, path + query, headers)[0] == 401
    with open(standalone.log_path, encoding="utf-8") as log:
        assert token("writer") not in log.read()


@pytest.mark.feature("F-SEC-02")
def test_credentials_that_run_out_end_the_session(standalone: GuardedStandalone) -> None:
    headers = {"Authorization": f"Bearer {expiring('taker', 2)}"}
    with opened(standalone.web_url, f"/ws/v2/consumer/{SPACE}/walked/expiring", headers) as socket:
        assert end_of(socket) == (1008, "The credentials have expired")


@pytest.mark.feature("F-SEC-02")
def test_a_permission_that_is_withdrawn_ends_the_session(standalone: GuardedStandalone) -> None:
    with standalone.admin() as admin:
        assert admin.post("/namespaces/owned/space/permissions/passing", json=["produce"]).status_code == 204
        with opened(standalone.web_url, f"/ws/v2/producer/{SPACE}/walked", bearer("passing")) as socket:
            say(socket, payload=sent("x"))
            assert heard(socket)["result"] == "ok"
            assert admin.delete("/namespaces/owned/space/permissions/passing").status_code == 204
            code, reason = end_of(socket)
        assert code == 1008, reason
        assert "passing" in reason


class WebSocketProcess(RoleProcess):
    """`magnetar websocket` with a file as Pulsar's websocket.conf; to brokers it is the role `admin`."""

    def __init__(self, directory: Path, broker: GuardedStandalone, **keys: str) -> None:
        self.http_port = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "websocket.conf"
        settings = {
            "webServicePort": str(self.http_port),
            "authenticationEnabled": "true",
            "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
            "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
            "superUserRoles": "admin",
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{token('admin')}",
            "brokerClientTrustCertsFilePath": str(broker.authority.file),
            "webSocketNumIoThreads": "8",
            **keys,
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        super().__init__("websocket", directory, "websocket", "--config", str(file))

    def command(self) -> list[str]:
        line = super().command()
        at = line.index("--data-dir")
        return line[:at] + line[at + 2 :]

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"


@pytest.mark.feature("F-SEC-02", "F-PH-10", "B-27")
@pytest.mark.parametrize("way", ["brokerServiceUrl", "brokerServiceUrlTls", "serviceUrl"])
def test_a_service_of_its_own_speaks_for_whoever_calls(standalone: GuardedStandalone, tmp_path: Path, way: str) -> None:
    urls = {
        "brokerServiceUrl": {"brokerServiceUrl": standalone.service_url},
        "brokerServiceUrlTls": {
            "brokerServiceUrlTls": standalone.service_url_tls,
            "brokerClientTlsEnabled": "true",
        },
        "serviceUrl": {"serviceUrl": standalone.web_url},
    }
    process = WebSocketProcess(tmp_path, standalone, **urls[way])
    process.start()
    try:
        path = f"{SPACE}/alone-{way.lower()}"
        with (
            opened(process.web_url, f"/ws/v2/reader/{path}?messageId=earliest", bearer("both")) as reading,
            opened(process.web_url, f"/ws/v2/producer/{path}", bearer("both")) as making,
        ):
            say(making, payload=sent("x"))
            assert heard(making)["result"] == "ok"
            assert payload_of(heard(reading)) == b"x"
            stats = f"{process.web_url}/admin/v2/proxy-stats/stats"
            assert len(httpx.get(stats, headers=bearer("admin")).json()) == 1
            assert httpx.get(stats, headers=bearer("both")).status_code == 403
        assert refusal(process.web_url, f"/ws/v2/producer/{path}", bearer("taker"))[0] == 403
        assert refusal(process.web_url, f"/ws/v2/producer/{path}")[0] == 401
        assert "magnetar_websocket_sessions" in httpx.get(f"{process.web_url}/metrics").text
    finally:
        process.kill()


@pytest.mark.feature("F-SEC-02", "F-PH-10")
def test_sessions_and_posts_over_tls(standalone: GuardedStandalone) -> None:
    context = ssl.create_default_context(cafile=str(standalone.authority.file))
    path = f"/ws/v2/reader/{SPACE}/secret?messageId=earliest"
    reading = opened_over_tls(standalone.web_url_tls, path, context, bearer("both"))
    with reading as socket, httpx.Client(verify=context, headers=bearer("writer")) as http:
        url = f"{standalone.web_url_tls}/topics/{SPACE}/secret"
        answer = http.post(url, json={"messages": [{"payload": "hidden"}]})
        assert answer.status_code == 200, answer.text
        assert payload_of(heard(socket)) == b"hidden"
        for role, status in (("taker", 403), ("stranger", 403)):
            assert http.post(url, json={"messages": []}, headers=bearer(role)).status_code == status
