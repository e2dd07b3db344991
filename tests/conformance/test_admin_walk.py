# SPDX-License-Identifier: Apache-2.0
"""Every path and verb of administration, and every command of the binary protocol, as super user, tenant administrator,
permitted role, stranger and anonymous, against the tables of what each needs.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from google.protobuf.message import Message
from starlette.routing import Match, Route

from magnetar.admin.app import all_routes, new_app
from magnetar.admin.coverage import sample_of, served_paths
from magnetar.admin.route_rules import need_of
from magnetar.broker.auth.command_rules import questions
from magnetar.broker.auth.grants import Need
from magnetar.broker.session.table import SERVED
from magnetar.wire import commands
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.guarded import GuardedStandalone, token
from tests.conformance.raw_client import RawClient, Type

ROLES = ("admin", "owner", "permitted", "stranger", None)
PERMITTED = {Need.LOOK_UP, Need.PRODUCE, Need.CONSUME, Need.LIST, Need.CONSUME_ALL}
# Would end the broker that is walked through.
NOT_WALKED = {("POST", "/admin/v2/brokers/shutdown")}
# Whether a process lives, and its version. Who opens a WebSocket is asked when it is known to be one.
OPEN_TO_ALL = {"/status.html", "/admin/v2/brokers/ready", "/admin/v2/brokers/version", "/ws/{path:path}"}

TOPIC = "persistent://owned/space/walked"
# By command, what is said of a topic that is somebody's.
SAID: Mapping["Type.ValueType", Message] = {
    Type.PARTITIONED_METADATA: pb.CommandPartitionedTopicMetadata(topic=TOPIC),
    Type.LOOKUP: pb.CommandLookupTopic(topic=TOPIC),
    Type.GET_TOPICS_OF_NAMESPACE: pb.CommandGetTopicsOfNamespace(namespace="owned/space"),
    Type.WATCH_TOPIC_LIST: pb.CommandWatchTopicList(namespace="owned/space", watcher_id=1, topics_pattern=".*"),
    Type.PRODUCER: pb.CommandProducer(topic=TOPIC, producer_id=1),
    Type.SUBSCRIBE: pb.CommandSubscribe(
        topic=TOPIC, subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1
    ),
    Type.GET_SCHEMA: pb.CommandGetSchema(topic=TOPIC),
    Type.GET_OR_CREATE_SCHEMA: pb.CommandGetOrCreateSchema(
        topic=TOPIC, schema=pb.Schema(name="s", schema_data=b"", type=pb.Schema.String)
    ),
    Type.ADD_PARTITION_TO_TXN: pb.CommandAddPartitionToTxn(partitions=[TOPIC]),
    Type.ADD_SUBSCRIPTION_TO_TXN: pb.CommandAddSubscriptionToTxn(
        subscription=[pb.Subscription(topic=TOPIC, subscription="s")]
    ),
    Type.END_TXN_ON_PARTITION: pb.CommandEndTxnOnPartition(topic=TOPIC),
    Type.END_TXN_ON_SUBSCRIPTION: pb.CommandEndTxnOnSubscription(
        subscription=pb.Subscription(topic=TOPIC, subscription="s")
    ),
}
# About the session itself, or what it has opened: that was asked about when it was opened.
ABOUT_ITS_OWN = {
    *(Type.CONNECT, Type.AUTH_RESPONSE, Type.PING, Type.PONG, Type.WATCH_TOPIC_LIST_CLOSE),
    *(Type.SEND, Type.CLOSE_PRODUCER, Type.FLOW, Type.ACK, Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, Type.SEEK),
    *(Type.UNSUBSCRIBE, Type.CLOSE_CONSUMER, Type.GET_LAST_MESSAGE_ID, Type.CONSUMER_STATS),
    *(Type.TC_CLIENT_CONNECT_REQUEST, Type.NEW_TXN, Type.END_TXN),
}
COMMANDERS = (*ROLES, "maker", "taker")
COMMANDS_OF = {
    Need.LOOK_UP: {"admin", "owner", "permitted", "maker", "taker"},
    Need.PRODUCE: {"admin", "owner", "permitted", "maker"},
    Need.CONSUME: {"admin", "owner", "permitted", "taker"},
    Need.LIST: {"admin", "owner", "permitted", "maker", "taker"},
    Need.SUPER_USER: {"admin"},
}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStandalone]:
    with GuardedStandalone(tmp_path_factory.mktemp("walked")) as running:
        running.furnish()
        with running.admin() as admin:
            for role, actions in (
                ("permitted", ["produce", "consume"]),
                ("maker", ["produce"]),
                ("taker", ["consume"]),
            ):
                path = f"/namespaces/owned/space/permissions/{role}"
                assert admin.post(path, json=actions).status_code == 204
        yield running


def roles_with(need: Need) -> set[str | None]:
    if need in (Need.NOTHING, Need.ANY_ROLE):
        return set(ROLES)
    if need in PERMITTED:
        return {"admin", "owner", "permitted"}
    return {"admin", "owner"} if need is Need.TENANT_ADMIN else {"admin"}


def need_for(method: str, path: str) -> Need:
    """By the route that serves it, as the door asks."""
    scope = {"type": "http", "method": method, "path": path, "headers": [], "root_path": ""}
    for route in all_routes():
        if isinstance(route, Route):
            match, found = route.matches(scope)
            if match is Match.FULL:
                return need_of(method, route.path, found["path_params"].get("policy", ""))
    raise AssertionError(f"{method} {path} is not served")


def asked_path(path: str, namespace: str) -> str:
    named = re.sub(r"\{tenant\}", "owned", re.sub(r"\{namespace\}", namespace, path))
    return sample_of(named)


@pytest.mark.feature("F-SEC-02")
def test_every_path_lets_through_whom_the_table_allows(standalone: GuardedStandalone) -> None:
    """F149: what no table names is for super users; a refused request is refused before its handler sees it."""
    wrong, walked = [], 0
    clients = {role: standalone.admin(role) for role in ROLES}
    try:
        for method, path, is_served in served_paths(all_routes()):
            if not is_served or (method, path) in NOT_WALKED:
                continue
            for role, client in clients.items():
                allowed = roles_with(need_for(method, asked_path(path, "space")))
                # Whoever may, does it to a namespace that is not there; a permitted role needs one that is.
                namespace = "missing" if role in ("admin", "owner") else "space"
                url = standalone.web_url + asked_path(path, namespace)
                status = client.request(method, httpx.URL(url)).status_code
                walked += 1
                if (status != 403) is not (role in allowed) or status in (401, 500):
                    wrong.append(f"{role}: {method} {path}: {status}, allowed {allowed}")
    finally:
        for client in clients.values():
            client.close()
    assert not wrong, "\n".join(wrong)
    assert walked > 1_500


def answer_as(role: str | None, port: int, kind: Any, said: Message) -> int | None:
    """The error that answers a command; None when it is served."""
    with RawClient(port, connect=False) as client:
        connect = pb.CommandConnect(client_version="raw", protocol_version=21)
        if role is not None:
            connect.auth_method_name, connect.auth_data = "token", token(role).encode()
        client.say(Type.CONNECT, connect)
        client.expect(Type.CONNECTED)
        asked: Any = type(said)()
        asked.CopyFrom(said)
        asked.request_id = client.request_id()
        client.say(kind, asked)
        answer: Any = commands.body_of(client.answer_to(asked.request_id))
    found = [getattr(answer, name) for name in ("error", "error_code") if name in answer.DESCRIPTOR.fields_by_name]
    return found[0] if found and found[0] != pb.UnknownError else None


@pytest.mark.feature("F-SEC-02")
def test_every_command_lets_through_whom_the_table_allows(standalone: GuardedStandalone) -> None:
    """F149: a command that is added belongs into one of the two tables above."""
    assert set(SAID) | ABOUT_ITS_OWN == set(SERVED)
    assert not [kind for kind in ABOUT_ITS_OWN if list(questions(kind, None))]
    wrong = []
    for kind, said in SAID.items():
        allowed = set.intersection(*(COMMANDS_OF[need] for need, _ in questions(kind, said)))
        for role in COMMANDERS:
            error = answer_as(role, standalone.port, kind, said)
            if (error != pb.AuthorizationError) is not (role in allowed):
                wrong.append(f"{role}: {Type.Name(kind)}: {error}, allowed {allowed}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.feature("F-SEC-02")
def test_without_an_anonymous_role_nobody_unknown_gets_an_answer(tmp_path_factory: pytest.TempPathFactory) -> None:
    """F150: nor to questions about statistics, metrics, health, dumps or what is served: every route that there is."""
    locked = {"anonymousUserRole": "", "authenticateMetricsEndpoint": "true"}
    with (
        GuardedStandalone(tmp_path_factory.mktemp("closed"), **locked) as closed,
        httpx.Client(base_url=closed.web_url, timeout=30) as client,
    ):
        for method, path, is_served in served_paths(all_routes()):
            need = need_for(method, asked_path(path, "space")) if is_served else None
            if need in (None, Need.NOTHING) or (method, path) in NOT_WALKED:
                continue
            answer = client.request(method, asked_path(path, "space"))
            assert answer.status_code == 401, f"{method} {path}: {answer.status_code}"
        routes = [route for route in new_app().routes if isinstance(route, Route)]
        assert {"/metrics", "/docs", "/openapi.json", "/admin/v2/brokers/health"} <= {route.path for route in routes}
        for route in routes:
            path = asked_path(re.sub(r":\w+}", "}", route.path), "space")
            for method in sorted((route.methods or set()) - {"HEAD"}):
                if route.path not in OPEN_TO_ALL and (method, route.path) not in NOT_WALKED:
                    status = client.request(method, path).status_code
                    assert status == 401, f"{method} {path}: {status}"
