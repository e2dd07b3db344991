# SPDX-License-Identifier: Apache-2.0
"""No command and no route without a rule, and what each need lets through."""

from typing import Any

import pytest

from magnetar.admin.app import all_routes
from magnetar.admin.route_rules import ROUTE_RULES, need_of
from magnetar.broker.auth.command_rules import COMMAND_RULES, questions
from magnetar.broker.auth.grants import Grants, Need, Target
from magnetar.broker.session.table import SERVED
from magnetar.names import TopicName
from magnetar.wire.proto import pulsar_api_pb2 as pb

TOPIC = TopicName.parse("persistent://tenant/space/t-partition-3")
RECORD: dict[str, Any] = {
    "auth_policies": {
        "namespace_auth": {"both": ["produce", "consume"], "out": ["consume"], "team-*": ["produce"]},
        "destination_auth": {"persistent://tenant/space/t": {"in": ["produce"]}},
        "subscription_auth_roles": {"theirs": ["out"]},
    }
}
GRANTS = Grants({"adminRoles": ["boss"]}, RECORD)
ROLES = ("boss", "both", "out", "in", "team-a", "nobody", "")


@pytest.mark.parametrize(
    ("need", "allowed"),
    [
        (Need.NOTHING, set(ROLES)),
        (Need.ANY_ROLE, set(ROLES)),
        (Need.PRODUCE, {"boss", "both", "in"}),
        (Need.CONSUME, {"boss", "both", "out"}),
        (Need.LOOK_UP, {"boss", "both", "out", "in"}),
        (Need.LIST, {"boss", "both", "out"}),
        (Need.CONSUME_ALL, {"boss", "both", "out"}),
        (Need.TENANT_ADMIN, {"boss"}),
        (Need.SUPER_USER, set()),
    ],
)
def test_what_each_need_lets_through(need: Need, allowed: set[str]) -> None:
    assert {role for role in ROLES if GRANTS.allow(role, need, Target.of(TOPIC))} == allowed


def test_a_subscription_may_belong_to_roles_or_begin_with_them() -> None:
    theirs = Target.of(TOPIC, "theirs")
    assert [role for role in ROLES if GRANTS.allow(role, Need.CONSUME, theirs)] == ["boss", "out"]
    prefixed = Grants(None, {**RECORD, "subscription_auth_mode": "Prefix"})
    assert prefixed.allow("both", Need.CONSUME, Target.of(TOPIC, "both-1"))
    assert not prefixed.allow("both", Need.CONSUME, Target.of(TOPIC, "mine"))


def test_wildcards_count_only_where_they_are_allowed() -> None:
    assert not GRANTS.allow("team-a", Need.PRODUCE, Target.of(TOPIC))
    open_ = GRANTS._replace(wildcards=True)
    assert open_.allow("team-a", Need.PRODUCE, Target.of(TOPIC))
    assert not open_.allow("team", Need.PRODUCE, Target.of(TOPIC))


@pytest.mark.parametrize("record", [None, {}, {"auth_policies": None}, {"auth_policies": {"namespace_auth": ["x"]}}])
def test_without_a_usable_record_nothing_is_granted(record: Any) -> None:
    assert not Grants({"adminRoles": "boss"}, record).allow("boss", Need.LOOK_UP, Target.of(TOPIC))


def test_every_command_that_is_served_has_a_rule() -> None:
    assert set(SERVED) <= set(COMMAND_RULES)


def test_a_command_without_a_rule_is_for_super_users() -> None:
    assert [need for need, _ in questions(10_000, None)] == [Need.SUPER_USER]


def test_each_partition_of_a_transaction_is_asked_for() -> None:
    command = pb.CommandAddPartitionToTxn(partitions=["a", "persistent://x/y/z"])
    asked = list(questions(pb.BaseCommand.ADD_PARTITION_TO_TXN, command))
    assert [(need, str(target)) for need, target in asked] == [
        (Need.PRODUCE, "persistent://public/default/a"),
        (Need.PRODUCE, "persistent://x/y/z"),
    ]


ROUTES = [(method, route.path) for route in all_routes() for method in sorted(route.methods)]  # type: ignore[attr-defined]


def test_every_listed_route_is_there() -> None:
    paths = {path for _, path in ROUTES}
    assert {path for _, path in ROUTE_RULES} <= paths


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_what_changes_something_is_never_open(method: str, path: str) -> None:
    need = need_of(method, path)
    if method != "GET":
        publishes = {Need.PRODUCE} if path.startswith("/topics/") else set()
        assert need in {Need.TENANT_ADMIN, Need.SUPER_USER, Need.CONSUME, Need.CONSUME_ALL} | publishes
    if "{tenant}" not in path and (method, path) not in ROUTE_RULES:
        assert need is Need.SUPER_USER


def test_a_tenant_does_not_raise_its_own_rates() -> None:
    path = "/admin/v2/namespaces/{tenant}/{namespace}/{policy}"
    assert need_of("POST", path, "publishRate") is Need.SUPER_USER
    assert need_of("POST", path, "retention") is Need.TENANT_ADMIN
    assert need_of("GET", path, "publishRate") is Need.TENANT_ADMIN


@pytest.mark.feature("F-TXN-02")
def test_whoever_may_connect_may_find_the_coordinators_of_transactions() -> None:
    """A grant on the system's namespace would let them write there."""
    name = "persistent://pulsar/system/transaction_coordinator_assign"
    for topic, is_asked in ((name, False), (f"{name}-partition-3", False), (f"{name}-not", True)):
        for kind, command in (
            (pb.BaseCommand.LOOKUP, pb.CommandLookupTopic(topic=topic)),
            (pb.BaseCommand.PARTITIONED_METADATA, pb.CommandPartitionedTopicMetadata(topic=topic)),
        ):
            needed = [Need.LOOK_UP] if is_asked else []
            assert [need for need, _ in questions(kind, command)] == needed
    assert [need for need, _ in questions(pb.BaseCommand.PRODUCER, pb.CommandProducer(topic=name))] == [Need.PRODUCE]
