# SPDX-License-Identifier: Apache-2.0
import json
from itertools import count

import pytest

from magnetar.cli import cluster_plan
from magnetar.cli.cluster_plan import BOOKIE, BROKER, METADATA, PROXY, Member, Plan
from magnetar.errors import BadSetting, DamagedRecord


def _plan(**numbers: int) -> Plan:
    ports = count(1000)
    plan = Plan("local", "remote:127.0.0.1:999", (Member(METADATA, METADATA, 999),))
    return cluster_plan.grown(plan, numbers, lambda: next(ports))


def test_members_are_named_and_numbered_and_get_ports_of_their_own() -> None:
    plan = _plan(bookie=2, broker=2)
    assert [member.name for member in plan.members] == ["metadata", "bookie-1", "bookie-2", "broker-1", "broker-2"]
    ports = [port for member in plan.members for port in (member.port, member.http_port) if port]
    assert len(ports) == len(set(ports))
    assert plan.service_url == "pulsar://127.0.0.1:1004,127.0.0.1:1006"
    assert plan.admin_url == "http://127.0.0.1:1005"


def test_clients_go_through_the_proxies_where_there_are_any() -> None:
    plan = _plan(bookie=1, broker=2, proxy=1)
    proxy = plan.member("proxy-1")
    assert plan.service_url == f"pulsar://127.0.0.1:{proxy.port}"
    assert plan.admin_url == f"http://127.0.0.1:{proxy.http_port}"


def test_a_plan_grows_and_never_shrinks() -> None:
    plan = _plan(bookie=2, broker=1)
    ports = count(2000)
    larger = cluster_plan.grown(plan, {BROKER: 2, BOOKIE: 3}, lambda: next(ports))
    assert larger.members[: len(plan.members)] == plan.members
    assert [member.name for member in larger.members[len(plan.members) :]] == ["bookie-3", "broker-2"]
    with pytest.raises(BadSetting, match="does not shrink"):
        cluster_plan.grown(larger, {BOOKIE: 2}, lambda: next(ports))
    with pytest.raises(BadSetting, match="too many"):
        cluster_plan.grown(larger, {BOOKIE: 101}, lambda: next(ports))


def test_a_name_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(BadSetting, match="There is no broker-9 here; there are metadata, bookie-1, broker-1"):
        _plan(bookie=1, broker=1).member("broker-9")


def test_each_role_is_started_with_its_own_words() -> None:
    plan = _plan(bookie=1, broker=1, proxy=1)
    plan = Plan(plan.name, plan.metadata_url, plan.members, {BROKER: ("b.conf",)})
    assert cluster_plan.words(plan, plan.member("metadata"), "d", "r") == (
        ["metadata", "serve", "--port", "999", "--data-dir", "d", "--ready-file", "r"]
    )
    broker = cluster_plan.words(plan, plan.member("broker-1"), "d", "r")
    assert broker[:3] == ["broker", "--metadata", "remote:127.0.0.1:999"]
    assert broker[broker.index("--config") + 1] == "b.conf"
    assert "--data-dir" not in cluster_plan.words(plan, plan.member("proxy-1"), "d", "r")


def test_one_bookie_gets_one_copy_and_more_get_the_default() -> None:
    one = _plan(bookie=1, broker=1)
    assert cluster_plan.environment(one, one.member("broker-1")) == {
        "MAGNETAR_CLUSTER_NAME": "local",
        "MAGNETAR_MANAGED_LEDGER_DEFAULT_ENSEMBLE_SIZE": "1",
        "MAGNETAR_MANAGED_LEDGER_DEFAULT_WRITE_QUORUM": "1",
        "MAGNETAR_MANAGED_LEDGER_DEFAULT_ACK_QUORUM": "1",
    }
    three = _plan(bookie=3, broker=1)
    assert cluster_plan.environment(three, three.member("broker-1")) == {"MAGNETAR_CLUSTER_NAME": "local"}


def test_a_plan_comes_back_as_it_was_kept() -> None:
    plan = _plan(bookie=2, broker=1, proxy=1).replaced(Member("bookie-1", BOOKIE, 1, 2, 77, "ticks 5"))
    plan = Plan(plan.name, plan.metadata_url, plan.members, {PROXY: ("p.conf",)})
    assert cluster_plan.decode(cluster_plan.encode(plan), "f") == plan


def test_a_newer_or_damaged_plan_is_refused_with_its_place() -> None:
    newer = json.loads(cluster_plan.encode(_plan(bookie=1))) | {"version": 3}
    with pytest.raises(BadSetting, match=r"cluster\.json was written by a newer Magnetar \(version 3"):
        cluster_plan.decode(json.dumps(newer), "cluster.json")
    for text in ("", "[]", "{}", '{"version": 1}', '{"version": "x"}', encode_with_role("king")):
        with pytest.raises(DamagedRecord, match=r"cluster\.json does not describe a cluster"):
            cluster_plan.decode(text, "cluster.json")


def encode_with_role(role: str) -> str:
    return cluster_plan.encode(Plan("n", "u", (Member("m", role, 1),)))


def test_a_plan_with_a_newer_role_is_not_for_an_older_reader() -> None:
    plan = _plan(bookie=1, broker=1)
    assert json.loads(cluster_plan.encode(plan))["version"] == 1
    larger = _plan(bookie=1, broker=1, autorecovery=1)
    assert json.loads(cluster_plan.encode(larger))["version"] == 2
    assert cluster_plan.decode(cluster_plan.encode(larger), "here") == larger
    member = larger.member("autorecovery-1")
    assert cluster_plan.words(larger, member, "d", "r") == [
        *("autorecovery", "--metadata", "remote:127.0.0.1:999", "--http-port", str(member.port)),
        *("--data-dir", "d", "--ready-file", "r"),
    ]
