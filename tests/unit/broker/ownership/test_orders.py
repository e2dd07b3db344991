# SPDX-License-Identifier: Apache-2.0
"""Orders about one bundle that come at the same time: one is carried out, the others join it or learn why not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.orders import ORDERS_ROOT, UNLOAD, Order
from magnetar.broker.ownership.splitting import RANGE
from magnetar.errors import BadSetting, BundleBusy, ServiceNotReady
from magnetar.names import encode_name
from magnetar.wire.error_codes import codes_of
from tests.unit.broker.ownership.worlds import NAMESPACE, Member, Members, run, until


class Slow:
    """A broker whose topics close when a test says so."""

    def __init__(self, member: Member) -> None:
        self.closing = asyncio.Event()
        self.go_on = asyncio.Event()
        self.times = 0
        member.ownership.close_topics = self._close

    async def _close(self, bundle: Bundle) -> None:
        self.times += 1
        self.closing.set()
        await self.go_on.wait()


@asynccontextmanager
async def owned(count: int) -> AsyncIterator[tuple[Members, Bundle, Slow]]:
    """Brokers of which the first has a bundle."""
    async with Members(count, bundles=1) as members:
        bundle = (await members.all[0].ranges.of(NAMESPACE)).all()[0]
        await members.all[0].ownership.claim(bundle)
        yield members, bundle, Slow(members.all[0])


@pytest.mark.feature("F-BND-13")
@pytest.mark.parametrize("asked", [0, 2])
def test_while_a_bundle_is_given_to_one_it_is_given_to_no_other_and_not_split(asked: int) -> None:
    async def scenario() -> None:
        async with owned(3) as (members, bundle, slow):
            asker = members.all[asked].cluster
            moving = asyncio.create_task(members.all[1].cluster.unload(bundle, members.all[1].own.broker_id))
            await slow.closing.wait()
            with pytest.raises(BundleBusy, match="is being unloaded and cannot be unloaded now"):
                await asker.unload(bundle, members.all[2].own.broker_id)
            with pytest.raises(BundleBusy, match="is being unloaded and cannot be split now") as refused:
                await asker.split(bundle, RANGE, unload=False)
            assert codes_of(refused.value).http_status == 409
            slow.go_on.set()
            assert await moving
            assert members.all[1].ownership.serves(bundle)
            assert slow.times == 1

    run(scenario)


@pytest.mark.feature("F-BND-13")
@pytest.mark.parametrize("asked", [0, 1])
def test_who_only_wants_a_bundle_unloaded_joins_the_one_who_moves_it(asked: int) -> None:
    async def scenario() -> None:
        async with owned(2) as (members, bundle, slow):
            target = members.all[1]
            moving = asyncio.create_task(members.all[0].cluster.unload(bundle, target.own.broker_id))
            await slow.closing.wait()
            joined = asyncio.create_task(members.all[asked].cluster.unload(bundle))
            await asyncio.sleep(0)
            slow.go_on.set()
            assert await joined
            await moving
            assert slow.times == 1
            assert target.ownership.serves(bundle)

    run(scenario)


@pytest.mark.feature("F-BND-13")
def test_while_a_bundle_is_split_it_is_not_moved() -> None:
    async def scenario() -> None:
        async with owned(2) as (members, bundle, _):
            owner = members.all[0]
            looking, go_on = asyncio.Event(), asyncio.Event()

            async def slow_places(bundle: Bundle) -> list[object]:
                looking.set()
                await go_on.wait()
                return []

            owner.cluster.splitter._places = slow_places  # type: ignore[assignment]
            splitting = asyncio.create_task(members.all[1].cluster.split(bundle, RANGE, unload=False))
            await looking.wait()
            for member in members.all:
                with pytest.raises(BundleBusy, match="is being split and cannot be unloaded now"):
                    await member.cluster.unload(bundle)
            go_on.set()
            await splitting
            assert len(owner.ownership.held()) == 2

    run(scenario)


def test_an_order_leaves_the_record_of_another_alone() -> None:
    async def scenario() -> None:
        async with owned(2) as (members, bundle, slow):
            path = f"{ORDERS_ROOT}/{members.all[0].own.broker_id}/{encode_name(str(bundle))}"
            moving = asyncio.create_task(members.all[1].cluster.unload(bundle, members.all[1].own.broker_id))
            await slow.closing.wait()
            before = await members.store.get(path)
            with pytest.raises(BundleBusy):
                await members.all[1].cluster.command(members.all[0].own.broker_id, Order(bundle, UNLOAD, "nobody:1"))
            assert await members.store.get(path) == before is not None
            slow.go_on.set()
            await moving
            assert await members.store.get(path) is None

    run(scenario)


def test_an_order_whose_session_ends_is_not_taken_as_done() -> None:
    async def scenario() -> None:
        async with owned(2) as (members, bundle, slow):
            sender = members.all[1]
            moving = asyncio.create_task(sender.cluster.unload(bundle, sender.own.broker_id))
            await slow.closing.wait()
            sender.store.expire_session()
            with pytest.raises(ServiceNotReady, match="is not known"):
                await moving
            sender.store.reestablish_session()
            slow.go_on.set()
            await until(lambda: not members.all[0].ownership.held())

    run(scenario)


def test_what_cannot_be_split_is_the_askers_fault_from_afar_too() -> None:
    async def scenario() -> None:
        async with owned(2) as (members, bundle, _):
            with pytest.raises(BadSetting, match="cannot be cut"):
                await members.all[1].cluster.split(bundle, "topic_count_equally_divide", unload=False)

    run(scenario)
