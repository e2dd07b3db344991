# SPDX-License-Identifier: Apache-2.0
"""Two real brokers that ask each other for what the other owns: with TLS, and saying who they are and for whom."""

import base64
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from magnetar import AuthenticationToken, Client
from magnetar.client.options import InitialPosition
from tests.brokers import broker_id
from tests.cluster import Cluster, RoleProcess
from tests.conformance.certificates import Authority
from tests.conformance.client_service import run
from tests.conformance.guarded import SECRET, token
from tests.conformance.web_socket import heard, opened_over_tls, payload_of, refusal, say, sent
from tests.processes import free_port

TOPIC = "/admin/v2/persistent/private/shared/t"
PARTITIONS = 4


class GuardedBroker(RoleProcess):
    """Serves with and without TLS; to other brokers it is the role `broker`, and speaks TLS."""

    def __init__(self, name: str, directory: Path, metadata: str, authority: Authority) -> None:
        certificate, key = authority.sign("localhost", name)
        self.trusted = directory / f"trusted-by-{name}.pem"
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy(authority.file, self.trusted)
        self.web_url_tls = f"https://127.0.0.1:{(https := free_port())}"
        ports = ["--port", str(free_port()), "--http-port", str(free_port())]
        environment = {
            # Bundles stay where the test puts them.
            "loadBalancerSheddingEnabled": "false",
            "managedLedgerDefaultEnsembleSize": "1",
            "managedLedgerDefaultWriteQuorum": "1",
            "managedLedgerDefaultAckQuorum": "1",
            "authenticationEnabled": "true",
            "authenticationProviders": "token,tls",
            "authorizationEnabled": "true",
            "superUserRoles": "admin,broker",
            "transactionCoordinatorEnabled": "true",
            "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
            "brokerServicePortTls": str(free_port()),
            "webServicePortTls": str(https),
            "tlsCertificateFilePath": certificate,
            "tlsKeyFilePath": key,
            "tlsTrustCertsFilePath": str(authority.file),
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{token('broker')}",
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": str(self.trusted),
            "webSocketServiceEnabled": "true",
        }
        super().__init__(name, directory / name, "broker", "--metadata", metadata, *ports, environment=environment)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[list[GuardedBroker]]:
    directory = tmp_path_factory.mktemp("guarded-cluster")
    with Cluster(directory, bookies=1, broker=False) as cluster:
        made = [GuardedBroker(f"broker-{i}", directory, cluster.metadata_url, authority) for i in range(2)]
        try:
            for broker in made:
                broker.launch()
            for broker in made:
                broker.until_ready()
            _furnish(made[0], authority)
            _share(made, authority)
            yield made
        finally:
            for broker in made:
                if broker.is_running:
                    broker.kill()


def _furnish(broker: GuardedBroker, authority: Authority) -> None:
    for path, body in (
        ("/admin/v2/tenants/private", {"adminRoles": ["owner"], "allowedClusters": ["standalone"]}),
        ("/admin/v2/namespaces/private/shared", {"bundles": {"numBundles": 8}}),
        (f"{TOPIC}/partitions", PARTITIONS),
    ):
        answer = asked(broker, authority, "PUT", path, role="admin", json=body)
        assert answer.status_code == 204, (path, answer.text)


def _share(brokers: list[GuardedBroker], authority: Authority) -> None:
    """Each broker owns some partitions: the bundle of the first goes to one, all others to the other."""
    lookup = TOPIC.replace("/admin/v2", "/lookup/v2/topic")
    bundles = [
        asked(brokers[0], authority, "GET", f"{lookup}-partition-{index}/bundle", role="admin").text
        for index in range(PARTITIONS)
    ]
    assert len(set(bundles)) > 1
    for bundle in dict.fromkeys(bundles):
        owner = broker_id(brokers[bundle != bundles[0]])
        path = f"/admin/v2/namespaces/private/shared/{bundle}/unload?destinationBroker={owner}"
        answer = asked(brokers[0], authority, "PUT", path, role="admin")
        assert answer.status_code == 204, answer.text


def asked(
    broker: GuardedBroker, authority: Authority, method: str, path: str, *, role: str, **given: Any
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token(role)}"}
    context = ssl.create_default_context(cafile=str(authority.file))
    with httpx.Client(base_url=broker.web_url_tls, verify=context, headers=headers, timeout=60) as client:
        return client.request(method, path, **given)


def by_certificate(broker: GuardedBroker, authority: Authority, method: str, path: str, *, role: str) -> httpx.Response:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(*authority.sign(role))
    with httpx.Client(base_url=broker.web_url_tls, verify=context, timeout=60) as client:
        return client.request(method, path)


@pytest.mark.feature("F-SEC-04")
def test_a_broker_speaks_for_its_client_whatever_that_proved_itself_with(
    brokers: list[GuardedBroker], authority: Authority
) -> None:
    for broker in brokers:
        for ask in (asked, by_certificate):
            answer = ask(broker, authority, "GET", f"{TOPIC}/partitioned-stats", role="owner")
            assert answer.status_code == 200, answer.text
            assert len(answer.json()["partitions"]) == PARTITIONS
            assert ask(broker, authority, "GET", f"{TOPIC}/partitioned-stats", role="stranger").status_code == 403


@pytest.mark.feature("F-SEC-04")
def test_both_brokers_audit_for_whom_it_was_done(brokers: list[GuardedBroker], authority: Authority) -> None:
    answer = asked(brokers[0], authority, "PUT", f"{TOPIC}/subscription/audited", role="owner")
    assert answer.status_code == 204, answer.text
    listed = [asked(broker, authority, "GET", f"{TOPIC}/subscriptions", role="owner").json() for broker in brokers]
    assert listed == [["audited"], ["audited"]]
    assert "'owner' through 'broker'" in brokers[1].log_path.read_text()


@pytest.mark.feature("F-TXN-15", "F-TXN-02", "F-SEC-04")
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_spans_brokers_that_prove_themselves_to_one_another(
    brokers: list[GuardedBroker], commit: bool
) -> None:
    """Its client is nobody's super user; the brokers are, and speak TLS."""
    topic = f"persistent://private/shared/{TOPIC.rpartition('/')[2]}"
    payloads = {b"%d %d" % (commit, number) for number in range(2 * PARTITIONS)}

    async def test() -> None:
        async with Client(brokers[0].said["serviceUrl"], AuthenticationToken(token("owner"))) as client:
            consumer = await client.subscribe(topic, f"sees-{commit}", initial_position=InitialPosition.Latest)
            producer = await client.create_producer(topic, batching_enabled=False)
            txn = await client.new_transaction()
            for payload in sorted(payloads):
                await producer.send(payload, txn=txn)
            await (txn.commit() if commit else txn.abort())
            await producer.send(b"behind")
            seen: set[bytes] = set()
            while b"behind" not in seen or (commit and len(seen) <= len(payloads)):
                received = await consumer.receive(30_000)
                seen.add(received.data())
            assert seen == ({*payloads, b"behind"} if commit else {b"behind"})

    run(test())


@pytest.mark.feature("F-SEC-04", "F-SEC-09")
def test_who_came_with_tls_is_sent_to_https(brokers: list[GuardedBroker], authority: Authority) -> None:
    places = []
    for broker in brokers:
        for index in range(PARTITIONS):
            answer = asked(broker, authority, "GET", f"{TOPIC}-partition-{index}/stats", role="owner")
            assert answer.status_code in (200, 307), answer.text
            if answer.status_code == 307:
                places.append(answer.headers["location"])
    assert places
    # Whose bundle is whose is the balancer's affair; one broker may have them all.
    assert {place.partition("/admin")[0] for place in places} <= {broker.web_url_tls for broker in brokers}


@pytest.mark.feature("F-SEC-04")
def test_a_broker_with_an_unknown_certificate_is_not_believed(
    brokers: list[GuardedBroker], authority: Authority, tmp_path: Path
) -> None:
    """Changed files are taken up without a restart: first an authority that signed nothing here, then the right one."""
    right = brokers[0].trusted.read_bytes()
    brokers[0].trusted.write_bytes(Authority(tmp_path).file.read_bytes())
    try:
        answer = asked(brokers[0], authority, "GET", f"{TOPIC}/partitioned-stats", role="owner")
        assert answer.status_code == 503, answer.text
        assert "did not answer" in answer.json()["reason"]
    finally:
        brokers[0].trusted.write_bytes(right)
    assert asked(brokers[0], authority, "GET", f"{TOPIC}/partitioned-stats", role="owner").status_code == 200


@pytest.mark.feature("F-PH-10", "F-SEC-04", "B-27")
def test_a_websocket_at_any_broker_reaches_every_partition_with_its_own_rights(
    brokers: list[GuardedBroker], authority: Authority
) -> None:
    """To the other broker this one says who it is and for whom it speaks: both must be allowed."""
    context = ssl.create_default_context(cafile=str(authority.file))
    owner = {"Authorization": f"Bearer {token('owner')}"}
    path = "persistent/private/shared/t"
    with opened_over_tls(brokers[1].web_url_tls, f"/ws/v2/consumer/{path}/all", context, owner) as taking:
        for broker in brokers:
            making = f"/ws/v2/producer/{path}?messageRoutingMode=RoundRobinPartition"
            with opened_over_tls(broker.web_url_tls, making, context, owner) as socket:
                for number in range(PARTITIONS):
                    say(socket, payload=sent(f"{broker.name} {number}"))
                assert {heard(socket)["result"] for _ in range(PARTITIONS)} == {"ok"}
        found = []
        for _ in range(2 * PARTITIONS):
            found.append(heard(taking))
            say(taking, messageId=found[-1]["messageId"])
        assert sorted(payload_of(message).decode() for message in found) == [
            f"{broker.name} {number}" for broker in brokers for number in range(PARTITIONS)
        ]
    stranger = {"Authorization": f"Bearer {token('stranger')}"}
    for broker in brokers:
        assert refusal(broker.web_url, f"/ws/v2/producer/{path}", stranger)[0] == 403


@pytest.mark.feature("F-PH-10", "F-SEC-04")
def test_a_post_is_sent_on_to_a_broker_that_has_the_partition(
    brokers: list[GuardedBroker], authority: Authority
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    headers = {"Authorization": f"Bearer {token('owner')}"}
    redirects = 0
    with httpx.Client(verify=context, headers=headers, timeout=60) as http:
        for broker in brokers:
            for partition in range(PARTITIONS):
                url = f"{broker.web_url_tls}/topics/persistent/private/shared/t/partitions/{partition}"
                answer = http.post(url, json={"messages": [{"payload": "x"}]})
                if answer.status_code == 307:
                    redirects += 1
                    assert answer.headers["location"].startswith("https://")
                    answer = http.post(answer.headers["location"], json={"messages": [{"payload": "x"}]})
                assert answer.status_code == 200, answer.text
                (result,) = answer.json()["messagePublishResults"]
                assert result["messageId"].endswith(f":{partition}")
    assert redirects == PARTITIONS, "each partition has one owner of the two"
