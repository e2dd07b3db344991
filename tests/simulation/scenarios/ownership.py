# SPDX-License-Identifier: Apache-2.0
"""Up to five brokers share the bundles of a namespace while sessions end, the store is away, and bundles are moved and
split; clients look topics up all the time.

At no moment do two brokers serve a topic that both have a live session: two may believe, but then one of them is cut
off. After calm every look-up ends at one owner, which is the one on record, and nobody holds what is not on record.
"""

import asyncio

from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.owner import encode_owner
from magnetar.broker.ownership.splitting import RANGE
from magnetar.config.balance import BalanceSettings
from magnetar.errors import MagnetarError
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.names import TopicName
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.registry import scenario
from tests.simulation.world.world import World
from tests.unit.broker.ownership.worlds import METADATA, NAMESPACE, Member

_SECONDS = 40.0
_CALM_S = 60.0
_REDIRECTS_MAX = 20
_SETTINGS = BalanceSettings(claim_timeout_ms=2_000, handover_timeout_ms=5_000, unload_timeout_ms=5_000)


@scenario("ownership")
async def ownership(world: World) -> None:
    await OwnershipStory(world).run()


class OwnershipStory:
    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random
        self.clock = world.node("metadata").clock
        tree = MemoryTree(self.clock, METADATA)
        self.store = MemoryStore(tree)
        count = self.random.randint(2, 5)
        self.members = [Member(tree, number, _SETTINGS, self.clock) for number in range(count)]
        # Those that are cut off from the store, or whose session has ended.
        self.cut_off: dict[str, None] = {}
        self.topics = [TopicName.parse(f"persistent://{NAMESPACE}/t-{number}") for number in range(6)]
        self.looked_up = 0
        self.stopping = False

    async def run(self) -> None:
        await self.store.put(NAMESPACE.policies_path, b'{"bundles":{"numBundles":4}}')
        for member in self.members:
            await member.join()
        async with asyncio.TaskGroup() as group:
            for member in self.members:
                group.create_task(self._weather(member))
            for _ in range(3):
                group.create_task(self._client())
            group.create_task(self._operator())
            await asyncio.sleep(_SECONDS)
            self.stopping = True
        await asyncio.sleep(_CALM_S)
        await self._check_calm()
        for member in self.members:
            await member.close()
        await self.store.close()

    # --- what happens -----------------------------------------------------------------------------

    async def _weather(self, member: Member) -> None:
        name = member.own.broker_id
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(0.2))
            self.cut_off[name] = None
            if self.random.random() < 0.5:
                self.world.fault("session lost")
                member.store.expire_session()
                await asyncio.sleep(self.random.random() * 3)
                member.store.reestablish_session()
            else:
                self.world.fault("store away")
                member.store.disconnect()
                await asyncio.sleep(self.random.random() * 3)
                if self.random.random() < 0.5:
                    member.store.reconnect()
                else:
                    member.store.expire_session()
                    member.store.reestablish_session()
            # What the store says of it is told on the loop.
            await asyncio.sleep(0.001)
            self.cut_off.pop(name)

    async def _client(self) -> None:
        while not self.stopping:
            topic = self.random.choice(self.topics)
            try:
                await self._look_up(topic, self.random.choice(self.members))
                self.looked_up += 1
            except MagnetarError:
                await asyncio.sleep(0.1)
            self._check_one_owner()
            await asyncio.sleep(self.random.random() * 0.2)

    async def _operator(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(0.5))
            asked = self.random.choice(self.members)
            try:
                bundles = (await asked.ranges.of(NAMESPACE)).all()
                bundle = self.random.choice(bundles)
                if self.random.random() < 0.3 and len(bundles) < 12:
                    await asked.cluster.split(bundle, RANGE, unload=self.random.random() < 0.5)
                else:
                    target = self.random.choice((*(member.own.broker_id for member in self.members), ""))
                    await asked.cluster.unload(bundle, target)
            except MagnetarError:
                continue
            self._check_one_owner()

    async def _look_up(self, topic: TopicName, asked: Member) -> Member:
        authoritative = False
        for _ in range(_REDIRECTS_MAX):
            located = await asked.ownership.locate(topic, authoritative=authoritative)
            asked = next(member for member in self.members if member.own == located.owner)
            if not located.is_redirect:
                return asked
            authoritative = located.is_authoritative
        raise AssertionError(f"{topic} is redirected for ever")

    # --- what must hold ---------------------------------------------------------------------------

    def _check_one_owner(self) -> None:
        whole = [member for member in self.members if member.own.broker_id not in self.cut_off]
        for topic in self.topics:
            serving = [member.own.broker_id for member in whole if any(b.has(topic) for b in _served(member))]
            if len(serving) > 1:
                self.world.check([Violation("ownership", f"{topic} is served by {', '.join(serving)}")])

    async def _check_calm(self) -> None:
        assert self.looked_up > 0
        violations = []
        for topic in self.topics:
            owners = [await self._look_up(topic, member) for member in self.members]
            if len({owner.own.broker_id for owner in owners}) > 1:
                violations.append(Violation("ownership", f"brokers do not agree on who has {topic}"))
                continue
            bundle = (await owners[0].ranges.fresh(NAMESPACE)).of(topic)
            record = await self.store.get(bundle.path)
            if record is None or record.value != encode_owner(owners[0].own):
                violations.append(Violation("ownership", f"the record of {bundle} does not name its owner"))
        bundles = await self.members[0].ranges.fresh(NAMESPACE)
        for member in self.members:
            stray = [bundle for bundle in _served(member) if not bundles.has(bundle)]
            if stray:
                violations.append(Violation("ownership", f"{member.own.broker_id} holds what is no bundle: {stray}"))
        self.world.check(violations)


def _served(member: Member) -> list[Bundle]:
    return [bundle for bundle in member.ownership.held() if member.ownership.serves(bundle)]
