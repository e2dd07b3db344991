# SPDX-License-Identifier: Apache-2.0
"""The leader's rounds over brokers in memory: who moves what, how much, and what holds it back."""

import json
from dataclasses import replace

import pytest

from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.dynamic_settings import CONFIGURATION_PATH, applied, check_dynamic
from magnetar.broker.ownership.load_data import BrokerLoad, BundleLoad, ResourceUsage
from magnetar.config.balance import BalanceSettings
from magnetar.errors import BadSetting
from tests.unit.broker.ownership.loads import MIB
from tests.unit.broker.ownership.worlds import NAMESPACE, Member, Members, run, until

SETTINGS = BalanceSettings(
    history_share=0.0,
    shedding="ThresholdShedder",
    report_interval_min_ms=1_000_000,
    shedding_interval_ms=1_000_000,
    split_interval_ms=1_000_000,
)


async def report(member: Member, cpu: float, weight: float = 10.0 * MIB, topics: int = 5) -> None:
    """Say that every bundle of a broker has this much traffic."""
    bundles = {str(bundle): BundleLoad(bytes_in=weight, topics=topics) for bundle in member.ownership.held()}
    resources = (ResourceUsage(cpu, 100.0), *(ResourceUsage(0.0, 100.0),) * 4)
    load = BrokerLoad(member.own, "instance", 0, 0, "test", resources, bundles)
    assert await member.cluster.membership.report(load)


async def crowd(members: Members) -> tuple[Member, Member]:
    """The leader has every bundle and the other none."""
    leader = next(member for member in members.all if member.cluster.membership.is_leader)
    other = next(member for member in members.all if member is not leader)
    for bundle in (await leader.ranges.of(NAMESPACE)).all():
        await leader.ownership.claim(bundle)
    await report(leader, 80)
    await report(other, 0)
    return leader, other


async def seen(member: Member, owner: Member, count: int) -> None:
    async def sees() -> bool:
        return len((await member.cluster.membership.members())[owner.own.broker_id].bundles) == count

    await until(sees)


@pytest.mark.feature("F-LB-03", "F-LB-06", "F-LB-07")
def test_a_crowded_broker_gives_to_one_that_has_come() -> None:
    async def scenario() -> None:
        async with Members(2, bundles=8, settings=SETTINGS) as members:
            leader, other = await crowd(members)
            await seen(leader, leader, 8)
            plan = await leader.cluster.balancer.plan()
            assert plan.moves
            assert "the average is 40 %" in plan.moves[0].reason
            # A plan does nothing, whoever makes it.
            assert len(leader.ownership.held()) == 8
            done = await leader.cluster.balancer.shed_round()
            assert {move.target for move in done} == {other.own.broker_id}
            assert len(other.ownership.held()) == len(done) == 8 - len(leader.ownership.held())
            assert (leader.cluster.balancer.rounds, other.cluster.balancer.rounds) == (1, 0)
            # What was moved stays where it is.
            await report(leader, 0)
            await report(other, 90)
            await seen(leader, other, len(done))
            again = await leader.cluster.balancer.plan()
            assert again.moves == []
            assert any("was moved lately" in note for note in again.notes)

    run(scenario)


@pytest.mark.feature("F-LB-07", "F-LB-13")
def test_moves_are_limited_and_switched_off_while_brokers_run() -> None:
    async def scenario() -> None:
        limited = replace(SETTINGS, moves_per_minute_max=1)
        async with Members(2, bundles=16, settings=limited) as members:
            leader, _ = await crowd(members)
            await seen(leader, leader, 16)
            plan = await leader.cluster.balancer.plan()
            assert len(plan.moves) == 1
            assert any("are left in this minute" in note for note in plan.notes)
            await leader.cluster.balancer.shed_round()
            assert (await leader.cluster.balancer.plan()).moves == []
            await members.store.put(CONFIGURATION_PATH, b'{"loadBalancerSheddingEnabled":"false"}')
            await until(lambda: not leader.cluster.settings.shedding_enabled)
            assert "shedding is switched off" in (await leader.cluster.balancer.plan()).notes
            await members.store.put(CONFIGURATION_PATH, b"{}")
            await until(lambda: leader.cluster.settings.shedding_enabled)

    run(scenario)


@pytest.mark.feature("F-BND-15", "F-BND-16", "F-BND-20")
def test_a_bundle_that_is_too_large_is_split_by_its_owner() -> None:
    async def scenario() -> None:
        small = replace(SETTINGS, bundle_topics_max=4)
        async with Members(2, bundles=1, settings=small) as members:
            leader = next(member for member in members.all if member.cluster.membership.is_leader)
            other = next(member for member in members.all if member is not leader)
            whole = (await other.ranges.of(NAMESPACE)).all()[0]
            await other.ownership.claim(whole)
            await report(other, 10)
            await seen(leader, other, 1)
            assert [split.reason for split in (await leader.cluster.balancer.plan()).splits] == [
                "5 topics are more than 4"
            ]
            await leader.cluster.balancer.split_round()
            bundles = (await leader.ranges.fresh(NAMESPACE)).all()
            assert len(bundles) == 2
            owned = [*leader.ownership.held(), *other.ownership.held()]
            assert set(owned) <= set(bundles)
            assert whole not in owned

    run(scenario)


@pytest.mark.feature("F-BND-15")
def test_a_bundle_of_1001_topics_is_split_as_it_comes_and_one_of_1000_is_not() -> None:
    async def scenario() -> None:
        async with Members(2, bundles=1, settings=SETTINGS) as members:
            leader = next(member for member in members.all if member.cluster.membership.is_leader)
            whole = (await leader.ranges.of(NAMESPACE)).all()[0]
            await leader.ownership.claim(whole)
            for topics, parts in ((1_000, 1), (1_001, 2)):
                await report(leader, 10, topics=topics)

                async def sees(topics: int = topics) -> bool:
                    own = (await leader.cluster.membership.members())[leader.own.broker_id]
                    return [load.topics for load in own.bundles.values()] == [topics]

                await until(sees)
                done = await leader.cluster.balancer.split_round()
                assert [split.reason for split in done] == ["1001 topics are more than 1000"] * (parts - 1)
                assert len((await leader.ranges.fresh(NAMESPACE)).all()) == parts

    run(scenario)


def test_a_namespace_deleted_since_it_was_reported_holds_up_no_other() -> None:
    async def scenario() -> None:
        small = replace(SETTINGS, bundle_topics_max=4)
        async with Members(2, bundles=2, settings=small) as members:
            leader, _ = await crowd(members)
            gone = "public/gone/0x00000000_0xffffffff"
            held = {str(bundle): BundleLoad(bytes_in=9.0 * MIB, topics=5) for bundle in leader.ownership.held()}
            resources = (ResourceUsage(80, 100.0), *(ResourceUsage(0.0, 100.0),) * 4)
            bundles = {gone: BundleLoad(bytes_in=30.0 * MIB, topics=5)} | held
            load = BrokerLoad(leader.own, "instance", 0, 0, "test", resources, bundles)
            assert await leader.cluster.membership.report(load)
            await seen(leader, leader, 3)
            plan = await leader.cluster.balancer.plan()
            assert {split.bundle for split in plan.splits} == held.keys()
            assert plan.moves[0].bundle == gone
            assert {split.bundle for split in await leader.cluster.balancer.split_round()} == held.keys()
            assert len((await leader.ranges.fresh(NAMESPACE)).all()) == 4
            await leader.cluster.balancer.shed_round()

    run(scenario)


@pytest.mark.feature("F-LB-04", "F-MD-11")
def test_the_leader_stores_averages() -> None:
    async def scenario() -> None:
        async with Members(2, bundles=2, settings=SETTINGS) as members:
            leader, _ = await crowd(members)
            await seen(leader, leader, 2)
            known = await leader.cluster.membership.members()
            leader.cluster.balancer.keep_averages(known)
            await leader.cluster.balancer.store_averages(known)
            bundle: Bundle = leader.ownership.held()[0]
            stored = await members.store.get(f"/loadbalance/bundle-data/{bundle}")
            assert stored is not None
            assert json.loads(stored.value)["longTermData"]["msgThroughputIn"] == 10.0 * MIB
            sums = await members.store.get(f"/loadbalance/broker-time-average/{leader.own.broker_id}")
            assert sums is not None
            assert json.loads(sums.value)["shortTermMsgThroughputIn"] == 20.0 * MIB

    run(scenario)


def test_averages_are_deleted_of_who_is_gone_and_not_of_who_is_missing_in_a_cache() -> None:
    """F115: a broker came since the members were read."""

    async def scenario() -> None:
        async with Members(2, bundles=2, settings=SETTINGS) as members:
            leader, other = await crowd(members)
            await seen(leader, leader, 2)
            averages = "/loadbalance/broker-time-average"
            known = dict(await leader.cluster.membership.members())
            leader.cluster.balancer.keep_averages(known)
            await leader.cluster.balancer.store_averages(known)
            await members.store.put(f"{averages}/b9:8080", b"{}")
            known.pop(other.own.broker_id)
            await leader.cluster.balancer.store_averages(known)
            assert await members.store.children(averages) == sorted((leader.own.broker_id, other.own.broker_id))
            await other.cluster.membership.withdraw()
            await leader.cluster.balancer.store_averages(known)
            assert await members.store.children(averages) == [leader.own.broker_id]

    run(scenario)


def test_only_settings_about_balance_change_while_brokers_run() -> None:
    check_dynamic("loadBalancerSheddingEnabled", "false")
    for name, text in (("clusterName", "x"), ("loadBalancerSheddingEnabled", "perhaps"), ("nothing", "1")):
        with pytest.raises(BadSetting):
            check_dynamic(name, text)
    # What someone else has written and cannot be used is passed over.
    changed = applied(BalanceSettings(), {"loadBalancerBrokerMaxTopics": "-5", "loadBalancerEnabled": "false", "x": 1})
    assert changed == BalanceSettings(enabled=False)


@pytest.mark.feature("F-TUN-08")
def test_with_splitting_off_no_number_of_topics_splits_a_bundle() -> None:
    async def scenario() -> None:
        often = replace(SETTINGS, split_interval_ms=20, shedding_interval_ms=20, shedding_enabled=False)
        assert often.bundle_topics_max == 1000
        async with Members(1, bundles=1, settings=replace(often, split_enabled=False)) as members:
            (alone,) = members.all
            (whole,) = (await alone.ranges.of(NAMESPACE)).all()
            await alone.ownership.claim(whole)
            load = BrokerLoad(
                alone.own,
                "instance",
                0,
                0,
                "test",
                (ResourceUsage(1.0, 100.0),) * 5,
                {str(whole): BundleLoad(topics=1001)},
            )
            assert await alone.cluster.membership.report(load)
            await seen(alone, alone, 1)
            plan = await alone.cluster.balancer.plan()
            assert [split.reason for split in plan.splits] == ["1001 topics are more than 1000"]
            assert "splitting is switched off" in plan.notes
            looks = alone.cluster.balancer.rounds
            await members.store.put(CONFIGURATION_PATH, b'{"loadBalancerSheddingEnabled":"true"}')
            # Its loop has looked since, more than once, and split nothing.
            await until(lambda: alone.cluster.balancer.rounds > looks + 2)
            assert (await alone.ranges.fresh(NAMESPACE)).all() == [whole]
            await members.store.put(CONFIGURATION_PATH, b'{"loadBalancerAutoBundleSplitEnabled":"true"}')

            async def is_split() -> bool:
                return len((await alone.ranges.fresh(NAMESPACE)).all()) == 2

            await until(is_split)

    run(scenario)
