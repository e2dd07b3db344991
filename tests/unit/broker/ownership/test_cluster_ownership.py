# SPDX-License-Identifier: Apache-2.0
"""Ownership among several brokers: races that one wins, sessions that end, a store that is away."""

import asyncio
from typing import Any

import pytest

from magnetar.broker.ownership.bundles import FULL, Bundle, equal_bounds
from magnetar.broker.ownership.handovers import HANDOVER_ROOT
from magnetar.broker.ownership.load_data import BrokerLoad
from magnetar.broker.ownership.membership import BROKERS_ROOT
from magnetar.broker.ownership.orders import UNLOAD, Order
from magnetar.broker.ownership.owner import Owner
from magnetar.broker.ownership.splitting import RANGE
from magnetar.config.balance import BalanceSettings
from magnetar.errors import BadSetting, CannotStart, LedgerFenced, OutcomeUnknown, ServiceNotReady, TopicNotFound
from magnetar.metadata.store import Stored
from magnetar.names import NamespaceName, TopicName, encode_name
from tests.unit.broker.ownership.worlds import NAMESPACE, Member, Members, run, until

TOPIC = TopicName.parse("persistent://public/default/t")


async def settle(members: Members, topic: TopicName = TOPIC) -> Member:
    """Look a topic up as a client does; returns its owner."""
    asked, authoritative = members.all[0], False
    for _ in range(10):
        located = await asked.ownership.locate(topic, authoritative=authoritative)
        asked = next(member for member in members.all if member.own == located.owner)
        if not located.is_redirect:
            return asked
        authoritative = located.is_authoritative
    raise AssertionError("redirected for ever")


async def settle_watches() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.feature("F-BND-06")
def test_brokers_that_claim_at_once_agree_on_one_owner() -> None:
    async def scenario() -> None:
        async with Members(3, bundles=128) as members:
            for bundle in (await members.all[0].ranges.of(NAMESPACE)).all():
                await asyncio.gather(*(member.ownership.claim(bundle) for member in members.all))
                assert sum(member.ownership.serves(bundle) for member in members.all) == 1

    run(scenario)


@pytest.mark.feature("F-BND-04")
def test_the_first_broker_that_reads_a_namespace_copies_its_bundles() -> None:
    async def scenario() -> None:
        async with Members(3, bundles=8) as members:
            found = await asyncio.gather(*(member.ranges.of(NAMESPACE) for member in members.all))
            assert {bundles.bounds for bundles in found} == {equal_bounds(8)}
            stored = await members.store.get(NAMESPACE.local_policies_path)
            assert stored is not None
            assert stored.version == 0
            # What the policies say later changes nothing.
            await members.store.put(NAMESPACE.policies_path, b'{"bundles":{"numBundles":2}}')
            assert (await members.all[1].ranges.fresh(NAMESPACE)).bounds == equal_bounds(8)
            with pytest.raises(TopicNotFound):
                await members.all[0].ranges.of(NamespaceName("public", "missing"))

    run(scenario)


@pytest.mark.feature("F-BND-05")
def test_bundles_are_read_once_and_then_known() -> None:
    async def scenario() -> None:
        async with Members(2) as members:
            await members.all[0].ranges.of(NAMESPACE)
            reads = 0
            get = members.all[1].store.get

            async def counted(path: str) -> object:
                nonlocal reads
                reads += path == NAMESPACE.local_policies_path
                return await get(path)

            members.all[1].store.get = counted  # type: ignore[method-assign, assignment]
            await members.all[1].ranges.of(NAMESPACE)
            await members.all[1].ranges.of(NAMESPACE)
            assert reads == 1

    run(scenario)


@pytest.mark.feature("F-BND-08")
def test_what_the_session_holds_and_the_broker_forgot_is_still_its_own() -> None:
    async def scenario() -> None:
        async with Members(2) as members:
            owner = await settle(members)
            bundle = owner.ownership.held()[0]
            before = await members.owner_record(bundle)
            held = owner.ownership._held.pop(bundle)
            held.claim.end()
            await until(lambda: bundle.path not in owner.cluster.ownership._coordination._claims)
            located = await owner.ownership.locate(TOPIC)
            assert (located.owner, located.is_redirect) == (owner.own, False)
            assert await members.owner_record(bundle) == before

    run(scenario)


def test_a_client_that_is_sent_here_is_served_when_the_record_says_so() -> None:
    """It comes from another broker's look-up, which knows the record alone."""

    async def scenario() -> None:
        async with Members(2) as members:
            owner = await settle(members)
            bundle = owner.ownership.held()[0]
            held = owner.ownership._held.pop(bundle)
            held.claim.end()
            await until(lambda: bundle.path not in owner.cluster.ownership._coordination._claims)
            other = next(member for member in members.all if member is not owner)
            assert (await other.ownership.locate(TOPIC)).owner == owner.own
            await owner.ownership.check_served(TOPIC)
            assert owner.ownership.serves(bundle)
            with pytest.raises(ServiceNotReady):
                await other.ownership.check_served(TOPIC)

    run(scenario)


@pytest.mark.feature("F-BND-07", "F-MD-17", "F-MD-22")
def test_a_lost_session_ends_ownership_and_the_next_one_begins_anew() -> None:
    async def scenario() -> None:
        async with Members(2) as members:
            owner = await settle(members)
            other = next(member for member in members.all if member is not owner)
            bundle = owner.ownership.held()[0]
            owner.store.expire_session()
            await until(lambda: not owner.ownership.serves(bundle) and owner.closed == [bundle])
            with pytest.raises(ServiceNotReady):
                await owner.ownership.check_served(TOPIC)
            assert await members.owner_record(bundle) is None
            assert (await other.ownership.locate(TOPIC, authoritative=True)).owner == other.own
            owner.store.reestablish_session()
            await until(lambda: owner.cluster.membership.is_registered)
            assert (await owner.ownership.locate(TOPIC)).owner == other.own

    run(scenario)


@pytest.mark.feature("F-MD-16", "F-PRB-23")
def test_while_the_store_is_away_what_is_held_is_served_and_nothing_is_taken() -> None:
    async def scenario() -> None:
        async with Members(2) as members:
            owner = await settle(members)
            bundle = owner.ownership.held()[0]
            owner.store.disconnect()
            await until(lambda: not owner.ownership._is_connected)
            assert (await owner.ownership.locate(TOPIC)).owner == owner.own
            await owner.ownership.check_served(TOPIC)
            elsewhere = next(b for b in (await owner.ranges.of(NAMESPACE)).all() if b != bundle)
            with pytest.raises(ServiceNotReady):
                await owner.ownership.locate_bundle(elsewhere)
            # Another broker has fenced a topic: whoever owned it before knows now, without any store.
            owner.ownership.on_storage_failed(TOPIC, LedgerFenced("fenced"))
            assert not owner.ownership.serves(bundle)
            owner.store.reconnect()

    run(scenario)


@pytest.mark.feature("F-MD-16")
def test_look_ups_learn_soon_that_the_store_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with Members(1, settings=BalanceSettings(claim_timeout_ms=1)) as members:
            asked = members.all[0]
            known = NamespaceName("public", "known")
            await members.store.put(known.policies_path, b"{}")
            # The first read copies the bundles, and is told so; the second one is kept.
            for _ in range(2):
                await asked.ranges.of(known)
                await settle_watches()
            silence = asyncio.Event()

            async def silent(path: str) -> None:
                await silence.wait()

            monkeypatch.setattr(asked.store, "get", silent)
            for topic, about in ((TOPIC, "The bundle of"), (TopicName.parse("persistent://public/known/t"), "Who has")):
                with pytest.raises(ServiceNotReady, match=f"{about} .* the metadata store did not answer in 1 ms"):
                    await asked.ownership.locate(topic)
            silence.set()

    run(scenario)


def test_a_fence_alone_is_no_proof_while_the_claim_is_held() -> None:
    async def scenario() -> None:
        async with Members(1) as members:
            owner = await settle(members)
            owner.ownership.on_storage_failed(TOPIC, LedgerFenced("fenced"))
            await owner.ownership.check_served(TOPIC)

    run(scenario)


@pytest.mark.feature("F-BND-19")
def test_two_splits_at_once_are_both_made() -> None:
    async def scenario() -> None:
        async with Members(2, bundles=2) as members:
            low, high = (await members.all[0].ranges.of(NAMESPACE)).all()
            await members.all[0].ownership.claim(low)
            await members.all[1].ownership.claim(high)
            await asyncio.gather(
                members.all[0].cluster.splitter.split(low, RANGE), members.all[1].cluster.splitter.split(high, RANGE)
            )
            bundles = await members.all[0].ranges.fresh(NAMESPACE)
            assert len(bundles.all()) == 4
            owners = [members.all[0].ownership.held(), members.all[1].ownership.held()]
            assert sorted(owners[0] + owners[1]) == bundles.all()
            assert await members.owner_record(low) is None
            # Topics were served all the time.
            assert members.all[0].closed == members.all[1].closed == []

    run(scenario)


@pytest.mark.feature("F-BND-19")
@pytest.mark.parametrize("happened", [True, False])
def test_a_split_whose_answer_is_lost_is_found_out_about(happened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gave its parts up while they were on record would serve the whole beside their next owners."""

    async def scenario() -> None:
        async with Members(1, bundles=1) as members:
            owner = members.all[0]
            whole = Bundle(NAMESPACE, 0, FULL)
            await owner.ownership.claim(whole)
            plainly = owner.store.put
            lost: list[str] = []

            async def put(path: str, value: bytes, **named: Any) -> Stored:
                if path != NAMESPACE.local_policies_path or lost:
                    return await plainly(path, value, **named)
                lost.append(path)
                if happened:
                    await plainly(path, value, **named)
                raise OutcomeUnknown("the connection broke before the answer came")

            monkeypatch.setattr(owner.store, "put", put)
            parts = await owner.cluster.splitter.split(whole, RANGE)
            assert lost
            assert owner.ownership.held() == parts == (await owner.ranges.fresh(NAMESPACE)).all()
            assert len(parts) == 2
            assert await members.owner_record(whole) is None

    run(scenario)


def test_a_split_of_what_is_gone_or_too_small_is_refused() -> None:
    async def scenario() -> None:
        async with Members(1, bundles=1) as members:
            owner = members.all[0]
            whole = Bundle(NAMESPACE, 0, FULL)
            with pytest.raises(ServiceNotReady):
                await owner.cluster.splitter.split(whole, RANGE)
            await owner.cluster.split(whole, RANGE, unload=False)
            assert len(owner.ownership.held()) == 2
            with pytest.raises(BadSetting):
                await owner.cluster.splitter.split(whole, RANGE)

    run(scenario)


@pytest.mark.feature("F-BND-13")
def test_a_bundle_is_handed_over_and_early_clients_wait_for_it() -> None:
    async def scenario() -> None:
        async with Members(2) as members:
            owner = await settle(members)
            target = next(member for member in members.all if member is not owner)
            bundle = owner.ownership.held()[0]
            go_on = asyncio.Event()
            told: list[Owner | None] = []

            async def close(closing: Bundle) -> None:
                told.append(owner.ownership.moved_to(TOPIC))
                await go_on.wait()

            owner.ownership.close_topics = close
            moving = asyncio.create_task(owner.cluster.unload(bundle, target.own.broker_id))
            await until(lambda: bundle in target.ownership._claiming)
            early = asyncio.create_task(target.ownership.check_served(TOPIC))
            redirected = await owner.ownership.locate(TOPIC)
            assert (redirected.owner, redirected.is_redirect) == (target.own, True)
            go_on.set()
            await early
            await moving
            assert told == [target.own]
            assert target.ownership.serves(bundle)
            # From a third place, through an order.
            owner.ownership.close_topics = owner._close
            await owner.cluster.unload(bundle, owner.own.broker_id)
            await until(lambda: not target.ownership.serves(bundle))
            with pytest.raises(BadSetting):
                await owner.cluster.unload(bundle, "nobody:1")

    run(scenario)


def test_a_bundle_that_was_given_while_the_session_was_lost_is_taken() -> None:
    async def scenario() -> None:
        async with Members(2) as members:
            taker = members.all[1]
            bundle = (await taker.ranges.of(NAMESPACE)).all()[0]
            taker.store.expire_session()
            await members.store.put(f"{HANDOVER_ROOT}/{taker.own.broker_id}/{encode_name(str(bundle))}", b"")
            taker.store.reestablish_session()
            await until(lambda: taker.ownership.serves(bundle))

    run(scenario)


def test_an_order_that_cannot_be_carried_out_says_why() -> None:
    async def scenario() -> None:
        async with Members(2) as members:
            free = (await members.all[0].ranges.of(NAMESPACE)).all()[0]
            for order in (Order(free, UNLOAD), Order(free, "paint")):
                with pytest.raises(ServiceNotReady, match="is not this broker's"):
                    await members.all[0].cluster.command(members.all[1].own.broker_id, order)

    run(scenario)


def test_a_broker_that_leaves_hands_everything_over() -> None:
    async def scenario() -> None:
        async with Members(3, bundles=16) as members:
            leaving = members.all[0]
            bundles = (await leaving.ranges.of(NAMESPACE)).all()
            for bundle in bundles:
                await leaving.ownership.claim(bundle)
            await leaving.cluster.leave()
            assert leaving.ownership.held() == []
            counts = [len(member.ownership.held()) for member in members.all[1:]]
            assert sum(counts) == 16
            assert abs(counts[0] - counts[1]) <= 1
            with pytest.raises(ServiceNotReady):
                await leaving.ownership.check_served(TOPIC)
            assert (await leaving.ownership.locate(TOPIC)).owner != leaving.own

    run(scenario)


@pytest.mark.feature("F-LB-01", "F-MD-22")
def test_the_oldest_candidate_leads_and_the_next_follows() -> None:
    async def scenario() -> None:
        async with Members(3) as members:
            first = members.all[0].cluster.membership
            assert first.is_leader
            assert {member.cluster.membership.leader for member in members.all} == {first.leader}
            members.all[0].store.expire_session()
            await until(lambda: any(member.cluster.membership.is_leader for member in members.all[1:]))
            assert not first.is_leader
            members.all[0].store.reestablish_session()
            await until(lambda: first.is_registered)
            leaders = [member.cluster.membership.is_leader for member in members.all]
            assert sum(leaders) == 1

    run(scenario)


@pytest.mark.feature("F-BND-09")
def test_a_brokers_own_namespace_is_its_own() -> None:
    async def scenario() -> None:
        async with Members(2) as members:
            for tenant in ("pulsar", "sla-monitor"):
                personal = NamespaceName(tenant, members.all[1].own.broker_id)
                await members.store.put(personal.policies_path, b"{}")
                owner = await settle(members, personal.topic("heartbeat"))
                assert owner is members.all[1]

    run(scenario)


def test_whoever_asks_again_at_once_gets_the_same_answer() -> None:
    async def scenario() -> None:
        async with Members(2, bundles=8) as members:
            leader = next(member for member in members.all if member.cluster.membership.is_leader)
            known = await leader.cluster.membership.members()
            bundles = (await leader.ranges.of(NAMESPACE)).all()
            first = [await leader.cluster.assignment.choose(bundle, known) for bundle in bundles]
            again = [await leader.cluster.assignment.choose(bundle, known) for bundle in bundles]
            assert first == again
            assert {first.count(broker) for broker in known} == {4}

    run(scenario)


@pytest.mark.feature("F-BND-09", "F-LB-05")
def test_without_a_centre_every_broker_decides() -> None:
    async def scenario() -> None:
        settings = BalanceSettings(centralized=False, report_interval_min_ms=1_000_000)
        async with Members(2, settings=settings) as members:
            follower = next(member for member in members.all if not member.cluster.membership.is_leader)
            located = await follower.ownership.locate(TOPIC)
            # It chose a broker that is there, by itself.
            assert located.is_authoritative
            assert located.owner in [member.own for member in members.all]

    run(scenario)


def test_the_former_process_of_a_directory_is_replaced_at_once_and_a_twin_is_refused() -> None:
    async def scenario() -> None:
        async with Members(1) as members:
            own = members.all[0].own
            twin = Member(members.tree, 0, BalanceSettings())
            membership = twin.cluster.membership
            membership._session_timeout_s = -4.9
            with pytest.raises(CannotStart, match="Another broker"):
                await membership.join(BrokerLoad(own, "another instance"))
            # The same directory, and so the same instance: whoever was there before is dead.
            membership._session_timeout_s = 5
            members.all[0].cluster.membership._registration.end()  # type: ignore[union-attr]
            await membership.join(BrokerLoad(own, "instance-0"))
            assert membership.is_registered
            assert await members.store.children(BROKERS_ROOT) == [own.broker_id]
            await twin.close()

    run(scenario)
