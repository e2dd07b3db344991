# SPDX-License-Identifier: Apache-2.0
"""Up to five brokers share the bundles of a namespace while sessions end, the store is away, brokers die and stand
still, clocks go wrong, and bundles are moved and split by operators and by the load manager; clients look topics up all
the time.

At no moment do two brokers serve a topic that both have a live session: two may believe, but then one of them is cut
off. Nobody gives a bundle up before its topics are closed. Every look-up ends. After calm all look-ups of a topic end
at one owner, which is the one on record, nobody holds what is not on record, and under a load that does not change the
load manager comes to rest.
"""

import asyncio
from functools import partial
from random import Random

from magnetar.broker.ownership.bundles import Bundles
from magnetar.broker.ownership.owner import Located, encode_owner
from magnetar.broker.ownership.splitting import RANGE
from magnetar.config.balance import BalanceSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import MagnetarError, TooManyRedirects
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.chance import stream
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.members import SimMember
from tests.simulation.world.metadata_model import MetadataFaults, MetadataModel
from tests.simulation.world.metadata_weather import MetadataWeather
from tests.simulation.world.planted_bugs import planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.sessions import Sessions
from tests.simulation.world.world import World

NAMESPACE = NamespaceName("public", "default")
_SECONDS = 30.0
# After calm the load manager may go on for a while; then it rests for longer than a minute, whose moves are limited.
_SETTLING_S = 30.0
_RESTING_S = 65.0
_TOPICS = 8
_LOOKS_MAX = 5
_BUNDLES_MAX = 12
_REDIRECTS_MAX = 20
_STRATEGIES = ("OverloadShedder", "ThresholdShedder", "UniformLoadShedder", "AvgShedder", "TransferShedder")
# Of the usual faults, those of processes and clocks: these brokers have neither disks nor connections.
_OF_PROCESSES = ("kill", "pause", "clock-jump", "clock-drift")


@scenario("ownership")
async def ownership(world: World) -> None:
    with planted(world.planted):
        await OwnershipStory(world).run()


class OwnershipStory:
    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random = world.random
        model = MetadataModel(
            stream(world.seed, "metadata"),
            clock=world.node("metadata").clock,
            settings=MetadataSettings(session_timeout_ms=4_000),
            faults=MetadataFaults(
                delay_least_ms=0.3, delay_tail_ms=0.3, watch_delay_tail_ms=random.choice((1.0, 50.0, 500.0))
            ),
        )
        self.sessions = Sessions(model)
        rates = [random.choice((1e5, 1e6, 5e6, 2e7, 6e7)) for _ in range(_TOPICS)][: world.at_most("topics", _TOPICS)]
        self.rates = {
            TopicName.parse(f"persistent://{NAMESPACE}/t-{number}"): rate for number, rate in enumerate(rates)
        }
        settings = _drawn(random)
        brokers = world.at_most("brokers", random.randint(2, 5))
        nodes = [world.node(f"broker-{number}") for number in range(1, brokers + 1)]
        self.members = [SimMember(node, self.sessions, settings, self.rates) for node in nodes]
        world.nemesis.forbid(*(kind for kind in world.nemesis.kinds if kind not in _OF_PROCESSES))
        world.nemesis.targets = nodes
        self.weather = MetadataWeather(world, self.sessions, stream(world.seed, "weather"))
        self.looked_up = 0
        self.is_stormy = True
        self.stopping = False

    async def run(self) -> None:
        world = self.world
        store = self.sessions.metadata.open_session()
        await store.put(NAMESPACE.policies_path, b'{"bundles":{"numBundles":4}}')
        await store.close()
        for member in self.members:
            member.node.start(member.live)
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self.sessions.keep())
            for topic in self.rates:
                group.create_task(self._client(topic))
            group.create_task(self._operator())
            await world.nemesis.run(_SECONDS)
            self.is_stormy = False
            world.nemesis.heal()
            self.weather.heal()
            await asyncio.sleep(_SETTLING_S)
            await self._check_rest()
            self.stopping = True
            keeping.cancel()
        await self._check_calm()

    # --- what happens -----------------------------------------------------------------------------

    async def _client(self, topic: TopicName) -> None:
        """Looks a topic up and uses it where it is, again and again, beginning anywhere."""
        random = stream(self.world.seed, f"client of {topic}")
        while not self.stopping:
            try:
                owner = await self._look_up(topic, random.choice(self.members))
                await owner.ask(lambda member: member.serve(topic))
                self.looked_up += 1
            except MagnetarError:
                await asyncio.sleep(0.1)
            self._check_one_owner()
            await asyncio.sleep(random.random() * (0.5 if self.is_stormy else 2.0))

    async def _operator(self) -> None:
        random = stream(self.world.seed, "operator")
        while self.is_stormy:
            await asyncio.sleep(random.expovariate(0.5))
            asked = random.choice(self.members)
            try:
                await asked.ask(lambda member: self._operate(member, random))
            except MagnetarError:
                continue
            self._check_one_owner()

    async def _operate(self, member: SimMember, random: Random) -> None:
        cluster = member.joined
        bundles = (await cluster.ownership.ranges.of(NAMESPACE)).all()
        bundle = random.choice(bundles)
        if random.random() < 0.3 and len(bundles) < _BUNDLES_MAX:
            await cluster.split(bundle, RANGE, unload=random.random() < 0.5)
        else:
            await cluster.unload(bundle, random.choice((*(each.name for each in self.members), "")))

    async def _look_up(self, topic: TopicName, asked: SimMember) -> SimMember:
        authoritative = False
        for _ in range(_REDIRECTS_MAX):
            located = await asked.ask(partial(_located, topic=topic, authoritative=authoritative))
            asked = next(member for member in self.members if member.own == located.owner)
            if not located.is_redirect:
                return asked
            authoritative = located.is_authoritative
        raise TooManyRedirects(f"{topic} is redirected for ever")

    def _changes(self) -> int:
        balancers = [member.joined.balancer for member in self.members]
        return sum(balancer.moves_made + balancer.splits_made for balancer in balancers)

    # --- what must hold ---------------------------------------------------------------------------

    def _check_one_owner(self) -> None:
        held = [(bundle, member.name) for member in self.members if member.is_whole for bundle in member.served()]
        # How far each broker's bundles reach, from the left to the right.
        reach: dict[str, int] = {}
        for bundle, name in sorted(held):
            others = [other for other, high in reach.items() if other != name and high > bundle.low]
            if others:
                sentence = f"{bundle} is served by {name} and in part by {', '.join(others)}"
                self.world.check([Violation("I7 one-owner", sentence)])
            reach[name] = max(bundle.high, reach.get(name, 0))

    async def _check_rest(self) -> None:
        seen = [self._changes()]
        for _ in range(_LOOKS_MAX):
            await asyncio.sleep(_RESTING_S)
            seen.append(self._changes())
            if seen[-1] == seen[-2]:
                return
        sentence = f"the load manager goes on moving bundles: {seen} changes, {_RESTING_S:g} s apart"
        self.world.check([Violation("load manager rests", sentence)])

    async def _check_calm(self) -> None:
        assert self.looked_up > 0
        tree = self.sessions.metadata.tree
        violations = []
        for topic in self.rates:
            try:
                owners = [await self._look_up(topic, member) for member in self.members]
            except MagnetarError as error:
                violations.append(Violation("look-ups agree", f"nobody says who has {topic}: {error}"))
                continue
            if len({owner.name for owner in owners}) > 1:
                violations.append(Violation("look-ups agree", f"brokers do not agree on who has {topic}"))
                continue
            bundles = await owners[0].ask(_bundles)
            bundle = bundles.of(topic)
            record = tree.get(bundle.path)
            if record is None or record.value != encode_owner(owners[0].own):
                violations.append(Violation("I7 one-owner", f"the record of {bundle} does not name its owner"))
        for member in self.members:
            bundles = await member.ask(_bundles)
            stray = [bundle for bundle in member.served() if not bundles.has(bundle)]
            if stray:
                violations.append(Violation("I7 one-owner", f"{member.name} holds what is no bundle: {stray}"))
        self.world.check(violations)


async def _located(member: SimMember, topic: TopicName, authoritative: bool) -> Located:
    return await member.joined.ownership.locate(topic, authoritative=authoritative)


async def _bundles(member: SimMember) -> Bundles:
    return await member.joined.ownership.ranges.fresh(NAMESPACE)


def _drawn(random: Random) -> BalanceSettings:
    return BalanceSettings(
        centralized=random.random() < 0.8,
        claim_timeout_ms=2_000,
        handover_timeout_ms=5_000,
        unload_timeout_ms=5_000,
        report_interval_min_ms=1_000,
        report_interval_max_ms=10_000,
        placement=random.choice(("LeastLongTermMessageRate", "LeastResourceUsageWithWeight")),
        shedding=random.choice(_STRATEGIES),
        shedding_interval_ms=2_000,
        shedding_grace_ms=10_000,
        moves_per_minute_max=random.choice((5, 100)),
        threshold_percent=10,
        history_share=random.choice((0.0, 0.5, 0.7)),
        move_bytes_min=1e6,
        lower_boundary=random.random() < 0.5,
        averages_interval_ms=20_000,
        split_interval_ms=5_000,
        bundle_bytes_per_s_max=random.choice((50_000_000, 1_000_000_000)),
        bundles_per_namespace_max=_BUNDLES_MAX,
    )
