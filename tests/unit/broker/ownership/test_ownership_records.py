# SPDX-License-Identifier: Apache-2.0
"""What ownership leaves in the metadata, and that it is all that anybody needs; a leader that owns nothing."""

import logging

import pytest

from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.dynamic_settings import CONFIGURATION_PATH
from magnetar.config.balance import BalanceSettings
from magnetar.config.keys import KEYS
from magnetar.names import TopicName
from tests.unit.broker.ownership.worlds import NAMESPACE, Member, Members, run, until

SETTINGS = BalanceSettings(claim_timeout_ms=2_000, report_interval_min_ms=1_000_000)
BUNDLES = 16


def topic(number: int) -> TopicName:
    return TopicName.parse(f"persistent://{NAMESPACE}/t-{number}")


async def owner_of(members: Members, name: TopicName, *, asked: Member | None = None) -> Member:
    """Look a topic up as a client does; returns its owner."""
    found, authoritative = asked or members.all[0], False
    for _ in range(10):
        located = await found.ownership.locate(name, authoritative=authoritative)
        found = next(member for member in members.all if member.own == located.owner)
        if not located.is_redirect:
            return found
        authoritative = located.is_authoritative
    raise AssertionError("redirected for ever")


async def count_records(members: Members, path: str) -> int:
    below = [f"{path.rstrip('/')}/{name}" for name in await members.store.children(path)]
    return len(below) + sum([await count_records(members, each) for each in below])


async def owned_records(members: Members) -> dict[str, bytes]:
    found = {}
    for name in await members.store.children(f"/namespace/{NAMESPACE}"):
        record = await members.store.get(f"/namespace/{NAMESPACE}/{name}")
        assert record is not None
        found[name] = record.value
    return found


@pytest.mark.feature("F-BND-01", "D-18", "D-30")
def test_ten_thousand_topics_have_as_many_owner_records_as_there_are_bundles() -> None:
    async def scenario() -> None:
        async with Members(3, bundles=BUNDLES, settings=SETTINGS) as members:
            for bundle in (await members.all[0].ranges.of(NAMESPACE)).all():
                await members.all[0].ownership.claim(bundle)
            before = await count_records(members, "/")
            for number in range(10_000):
                await owner_of(members, topic(number))
            assert len(await owned_records(members)) == BUNDLES
            assert await count_records(members, "/") == before

    run(scenario)


@pytest.mark.feature("F-BND-22")
def test_a_fresh_broker_works_out_all_ownership_from_the_metadata() -> None:
    async def scenario() -> None:
        async with Members(3, bundles=BUNDLES, settings=SETTINGS) as members:
            names = [topic(number) for number in range(100)]
            known = {name: (await owner_of(members, name)).own for name in names}
            assert len({owner.broker_id for owner in known.values()}) == 3
            fresh = Member(members.tree, 9, SETTINGS)
            await fresh.join()
            members.all.append(fresh)
            assert {name: (await owner_of(members, name, asked=fresh)).own for name in names} == known
            # All others die; what they had is gone with their sessions, and the fresh one serves everything.
            for dead in members.all[:3]:
                dead.store.expire_session()
            await until(lambda: fresh.cluster.membership.is_leader)
            assert {(await owner_of(members, name, asked=fresh)).own for name in names} == {fresh.own}

    run(scenario)


@pytest.mark.feature("F-MD-21")
def test_a_dedicated_leader_owns_nothing_and_gives_away_what_it_had() -> None:
    async def scenario() -> None:
        settings = BalanceSettings(claim_timeout_ms=2_000, report_interval_min_ms=1_000_000, leader_takes_bundles=False)
        async with Members(3, bundles=BUNDLES, settings=settings) as members:
            owners = {(await owner_of(members, topic(number))).own.broker_id for number in range(200)}
            leader = next(member for member in members.all if member.cluster.membership.is_leader)
            assert leader.own.broker_id not in owners
            assert len(owners) == 2
            assert leader.ownership.held() == []
            # The next leader had bundles, and hands them over.
            await leader.cluster.leave()
            members.all.remove(leader)
            await until(lambda: any(member.cluster.membership.is_leader for member in members.all))
            heir = next(member for member in members.all if member.cluster.membership.is_leader)
            other = next(member for member in members.all if member is not heir)
            assert heir.ownership.held()
            await heir.cluster.leader.give_up()
            assert heir.ownership.held() == []
            assert {(await owner_of(members, topic(number))).own for number in range(200)} == {other.own}
            # Alone it serves everything: better a busy leader than none.
            await other.cluster.leave()
            members.all.remove(other)
            await until(lambda: heir.cluster.leader.shunned == heir.own.broker_id)
            assert (await owner_of(members, topic(0))) is heir
            await heir.cluster.leader.give_up()
            assert heir.ownership.held()
            await other.close()
            await leader.close()

    run(scenario)


@pytest.mark.feature("F-LB-12")
def test_strategies_are_swapped_by_their_class_names_while_brokers_run(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with Members(2, settings=SETTINGS) as members:
            impl = "org.apache.pulsar.broker.loadbalance.impl."
            texts = {
                "loadBalancerLoadSheddingStrategy": f"{impl}UniformLoadShedder",
                "loadBalancerLoadPlacementStrategy": f"{impl}RoundRobinBrokerSelector",
            }
            text = "{" + ",".join(f'"{key}":"{value}"' for key, value in texts.items()) + "}"
            await members.store.put(CONFIGURATION_PATH, text.encode())
            for member in members.all:
                await until(lambda member=member: member.cluster.settings.shedding == "UniformLoadShedder")
                assert member.cluster.settings.placement == "RoundRobinBrokerSelector"
            # The new ones decide: in turn, whatever the load is.
            chosen = []
            for number in range(4):
                bundle = Bundle(NAMESPACE, number, number + 1)
                chosen.append(
                    await members.all[0].cluster.assignment.choose(
                        bundle, await members.all[0].cluster.membership.members()
                    )
                )
            assert chosen[:2] != chosen[1:3]

    with caplog.at_level(logging.INFO):
        run(scenario)
    assert "the strategy of shedding is UniformLoadShedder now; it was ThresholdShedder" in caplog.text
    assert "the strategy of placement is RoundRobinBrokerSelector now; it was LeastLongTermMessageRate" in caplog.text


@pytest.mark.feature("D-04", "D-14")
def test_defaults_are_upstreams() -> None:
    settings = BalanceSettings()
    assert settings.shedding == "ThresholdShedder"
    assert settings.namespace_bundles == 4
    names = {key.name: key.field for key in KEYS if key.owner == "balance"}
    assert getattr(settings, names["loadBalancerNamespaceMaximumBundles"]) == 128
