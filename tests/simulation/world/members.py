# SPDX-License-Identifier: Apache-2.0
"""A broker without storage, as a process: the production parts of a cluster's ownership, topics that only open and
close, and a load that follows from the topics that are open.

What clients and operators want of it is done by its own process (`ask`), as if it had come over a connection: who asks
one that dies learns it soon, and who asks one that lives is answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from magnetar.broker.ownership.bundle_ranges import BundleRanges
from magnetar.broker.ownership.bundles import Bundle, hash_of
from magnetar.broker.ownership.cluster import Cluster, Clustering
from magnetar.broker.ownership.owner import Owner, encode_owner
from magnetar.broker.ownership.splitting import TopicPlace
from magnetar.broker.ownership.traffic import TopicCounts
from magnetar.config.balance import BalanceSettings
from magnetar.errors import MagnetarError, ServiceNotReady
from magnetar.names import TopicName
from magnetar.runtime.host import HostReading
from magnetar.runtime.tasks import Tasks
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.metadata_model import ModelStore
from tests.simulation.world.node import Node
from tests.simulation.world.sessions import Sessions

Result = TypeVar("Result")

# Bytes a second that keep one broker wholly busy.
CAPACITY = 100e6
_MESSAGE_BYTES = 1_000
_POLL_S = 0.5
# A look-up that has to wait for hand-overs waits for several of them, one after the other.
_ANSWER_S = 60.0


class SimMember:
    def __init__(
        self, node: Node, sessions: Sessions, settings: BalanceSettings, rates: Mapping[TopicName, float]
    ) -> None:
        self.node = node
        self.own = Owner(f"pulsar://{node.name}:6650", f"http://{node.name}:8080")
        # Topics that this life has open.
        self.open: dict[TopicName, None] = {}
        self.cluster: Cluster | None = None
        self._sessions = sessions
        self._settings = settings
        # Bytes a second by topic.
        self._rates = rates
        self._random = node.random("member")
        self._store: ModelStore | None = None
        self._requests: asyncio.Queue[tuple[Callable[[], Awaitable[object]], asyncio.Future[object]]] = asyncio.Queue()
        self._busy_s = self._read_s = 0.0

    @property
    def name(self) -> str:
        return self.own.broker_id

    @property
    def is_whole(self) -> bool:
        """It runs, and the store and it agree that its session lives."""
        store = self._store
        if self.cluster is None or store is None or not self.node.is_running() or self.node.is_paused():
            return False
        return store.is_connected and store.session in self._sessions.metadata.tree.sessions

    def served(self) -> list[Bundle]:
        ownership = self.joined.ownership
        return [bundle for bundle in ownership.held() if ownership.serves(bundle)]

    @property
    def joined(self) -> Cluster:
        if self.cluster is None:
            raise ServiceNotReady(f"{self.name} is starting")
        return self.cluster

    async def live(self, node: Node) -> None:
        """One life."""
        self.cluster, self.open = None, {}
        self._requests = asyncio.Queue()
        self._random = node.random(f"member-{node.lives}")

        def on_crash(name: str, error: BaseException) -> None:
            node.world.check([Violation("R19 no silent death", f"{node.name}: {name} died of {error!r}")])

        store = self._store = self._sessions.open()
        ranges = BundleRanges(store)
        cluster = Cluster(
            Clustering(self._settings, self._sessions.metadata.settings, node.name, self._read_host),
            "test",
            store,
            ranges,
            node.clock,
            on_crash,
            self._places,
        )
        cluster.ownership.close_topics = self._close
        cluster.reports.counts = self._counts
        await cluster.join(self.own)
        self.cluster = cluster
        tasks = Tasks(node.name, on_crash)
        while True:
            do, answer = await self._requests.get()
            tasks.start(_answered(do, answer), "request")

    async def ask(self, do: Callable[["SimMember"], Awaitable[Result]]) -> Result:
        """Have its process do something. ServiceNotReady when it dies meanwhile."""
        node, lives = self.node, self.node.lives
        if self.cluster is None or not node.is_running():
            raise ServiceNotReady(f"{self.name} does not run")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        self._requests.put_nowait((lambda: do(self), answer))  # type: ignore[arg-type]
        until, was_paused = loop.time() + _ANSWER_S, False
        while not answer.done():
            await asyncio.wait([answer], timeout=_POLL_S)
            was_paused = was_paused or node.is_paused()
            if answer.done():
                break
            if node.lives != lives or not node.is_running():
                raise ServiceNotReady(f"{self.name} died before it answered")
            if loop.time() > until:
                if not was_paused:
                    node.world.check([Violation("I13 live", f"{self.name} did not answer in {_ANSWER_S:g} s")])
                raise ServiceNotReady(f"{self.name} does not answer")
        return answer.result()

    async def serve(self, topic: TopicName) -> None:
        """As a client's PRODUCER would: load the topic, if it is served here."""
        ownership = self.joined.ownership
        await ownership.check_served(topic)
        if topic not in self.open:
            await asyncio.sleep(0.05 * self._random.random())
            await ownership.check_served(topic)
            self.open[topic] = None

    # --- what the cluster asks of its broker ------------------------------------------------------------

    async def _close(self, bundle: Bundle) -> None:
        """Topics close side by side; while a bundle is given up, its record stays until the last has closed."""

        async def close(topic: TopicName) -> None:
            await asyncio.sleep(0.3 * self._random.random())
            is_given_up = bundle in self.joined.ownership.held()
            if self.open.pop(topic, topic) is None and is_given_up and self.is_whole:
                self._check_record(bundle, topic)

        await asyncio.gather(*(close(topic) for topic in list(self.open) if bundle.has(topic)))

    def _check_record(self, bundle: Bundle, topic: TopicName) -> None:
        record = self._sessions.metadata.tree.get(bundle.path)
        if record is None or record.value != encode_owner(self.own):
            sentence = f"{self.name} gave up {bundle} before {topic} was closed"
            self.node.world.check([Violation("I7 one-owner", sentence)])

    async def _places(self, bundle: Bundle) -> Sequence[TopicPlace]:
        found = (topic for topic in self._rates if bundle.has(topic))
        return [TopicPlace(hash_of(topic), self._rates[topic], self._rates[topic] / _MESSAGE_BYTES) for topic in found]

    def _counts(self) -> list[TopicCounts]:
        now_s = self.node.world.loop.time()
        counted = ((topic, int(self._rates[topic] * now_s)) for topic in self.open)
        return [TopicCounts(topic, size // _MESSAGE_BYTES, 0, size, 0, 1, 0) for topic, size in counted]

    def _read_host(self) -> HostReading:
        now_s = self.node.world.loop.time()
        share = min(1.0, sum(self._rates[topic] for topic in self.open) / CAPACITY)
        self._busy_s += share * (now_s - self._read_s)
        self._read_s = now_s
        return HostReading(1, self._busy_s)


async def _answered(do: Callable[[], Awaitable[object]], answer: asyncio.Future[object]) -> None:
    try:
        result = await do()
    except MagnetarError as error:
        if not answer.done():
            answer.set_exception(error)
            # Whoever asked may have left.
            answer.exception()
    else:
        if not answer.done():
            answer.set_result(result)
