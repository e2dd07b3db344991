# SPDX-License-Identifier: Apache-2.0
"""One broker: owns its connections and its topics; starts, drains and stops them.

Built by an assembler with the stores it stands on. Never knows where bookies are.
Assembles.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.as_client import AsClient
from magnetar.broker.auth.authenticator import Principal
from magnetar.broker.auth.guard import Guard
from magnetar.broker.auth.opening import open_authentication, open_tls
from magnetar.broker.connection import Connection
from magnetar.broker.dispatch.liveness import watch_liveness
from magnetar.broker.dispatch.wake_measure import WakeMeasure
from magnetar.broker.doors import Doors, ServiceUrls
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.own_cursors import is_replication
from magnetar.broker.ownership.bundle_ranges import BundleRanges
from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.owner import Located, Owner, parse_listeners
from magnetar.broker.ownership.ownership import Ownership, SoleOwnership
from magnetar.broker.ownership.splitting import TopicPlace
from magnetar.broker.peer_requests import PeerRequests
from magnetar.broker.policy_upkeep import PolicyUpkeep
from magnetar.broker.publish_budget import PublishBudget
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.schemas.storage import SchemaStorage
from magnetar.broker.session.produce import on_sends
from magnetar.broker.session.session import Session
from magnetar.broker.session.table import SERVED
from magnetar.broker.session.withdrawals import Withdrawals
from magnetar.broker.timed import Timed
from magnetar.broker.topic import Topic
from magnetar.broker.topic_counts import places_of, topic_counts
from magnetar.broker.topic_list import ListMode
from magnetar.broker.topics import Topics
from magnetar.broker.transactions.transactions import Transactions
from magnetar.config.broker import BrokerSettings
from magnetar.config.security import SecuritySettings
from magnetar.errors import InvariantBroken, MagnetarError
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.metadata.store import MetadataStore
from magnetar.names import TopicName
from magnetar.runtime.chance import stream
from magnetar.runtime.clock import WallClock
from magnetar.runtime.server_tls import watch_files
from magnetar.runtime.tasks import Tasks

if TYPE_CHECKING:
    from magnetar.broker.ownership.cluster import Cluster, Clustering
    from magnetar.broker.replication.replication import Replication

# Topics of one bundle that close at the same time.
_CLOSED_AT_ONCE = 64

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LookupCounts:
    """How look-ups ended, and how long they took."""

    timed: Timed
    answers: int = 0
    redirects: int = 0


class Broker:
    def __init__(
        self,
        settings: BrokerSettings,
        store: MetadataStore,
        managed_ledgers: ManagedLedgers,
        clock: WallClock,
        on_crash: Callable[[str, BaseException], None],
        security: SecuritySettings | None = None,
        clustering: "Clustering | None" = None,
    ) -> None:
        security = security or SecuritySettings()
        self.settings = settings
        self.clock = clock
        self._on_crash = on_crash
        self.tls = open_tls(security)
        self.guard = Guard(security, open_authentication(security, clock), store)
        # Who this broker is to other brokers.
        self.as_client = AsClient(security)
        self.namespaces = Namespaces(store)
        self.bundles = BundleRanges(store)
        self.cluster: Cluster | None = None
        self.ownership: Ownership = SoleOwnership(self.namespaces)
        self._store = store
        self._tasks = Tasks("broker", on_crash)
        self.topics = Topics(self.namespaces, managed_ledgers, settings, clock, self._tasks, store)
        self.policies = self.topics.policies
        self.policy_upkeep = PolicyUpkeep(self.topics, self.policies, settings, clock, self._tasks)
        self.schemas = SchemaRegistry(
            SchemaStorage(store, managed_ledgers.side_ledgers, cached_max=settings.schemas_cached_max),
            clock,
            bytes_max=settings.schema_bytes_max,
        )
        self.transactions = Transactions(self.topics, self.namespaces, settings, clock, on_crash)
        self._replication: Replication | None = None
        self.topics.replicate = self._replicate
        self.topics.on_deleted = lambda name: self.schemas.delete(name, force=True)
        if clustering is not None:
            self.cluster = self._in_cluster(clustering)
            self._share(self.cluster)
        # How to end the process in order, for whoever may ask for it; None inside of somebody else's.
        self.stop_process: Callable[[str], None] | None = None
        self.lookups = LookupCounts(Timed(asyncio.get_running_loop().time))
        self.connections_opened = 0
        self.connections_refused = 0
        self.sessions_failed = 0
        self.publish_budget = PublishBudget(settings.process_publish_bytes_max, settings.publish_pace_bytes)
        self.topics.dispatch.measure = WakeMeasure(self.publish_budget)
        self._connections: dict[Connection, Tasks] = {}
        self._of_address: Counter[str] = Counter()
        self._doors = Doors(settings, security, self.tls, self.new_connection)
        self._instance = 0
        self._names_made = 0

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections)

    def _sessions(self) -> list[Session]:
        return [connection.session for connection in self._connections]

    async def start(self, *, listens: bool = True, front: Owner | None = None) -> str:
        """Listen; returns the service URL with the port that was taken. Otherwise `new_connection` is the door.

        `front` is where the cluster is served, when that is not here.
        """
        settings = self.settings
        stored = await self._store.put("/counters/producer-name/-", b"", sequential=True)
        self._instance = int(stored.path.rpartition("-")[2])
        security = self.guard.settings
        host = settings.advertised_address
        urls = await self._doors.open() if listens else ServiceUrls(f"pulsar://{host}:{settings.port}")
        if self.tls is not None:
            self._tasks.start(watch_files(self.tls, security.tls_reload_check_s), "watch certificates")
        web_url = f"http://{host}:{settings.http_port}" if settings.http_port >= 0 else ""
        web_url_tls = f"https://{host}:{security.https_port}" if self.tls and security.https_port > 0 else ""
        own = Owner(urls.plain, web_url, urls.tls, web_url_tls, parse_listeners(settings.advertised_listeners))
        bundles = 1 if self.cluster is None else self.cluster.settings.namespace_bundles
        await self.namespaces.initialize(settings.cluster_name, front or own, bundles=bundles)
        if self.cluster is not None:
            await self.cluster.join(own)
        self.ownership.own = own
        self.policy_upkeep.start()
        for upkeep in self.guard.upkeep():
            self._tasks.start(upkeep(), "authentication")
        if self.guard.is_authorizing:
            withdrawals = Withdrawals(self.guard, self._sessions, security.refresh_check_s)
            self._tasks.start(withdrawals.watch(), "withdrawn permissions")
        await self.transactions.start()
        self._tasks.start(watch_liveness(self.topics.pumps, settings.liveness_check_interval_ms), "watch liveness")
        return own.service_url or own.service_url_tls

    async def listen_on(self, listener: socket.socket, *, tls: bool = False) -> asyncio.Server:
        """Serve clients at one more port, such as one that several processes share; closed by whoever asked for it."""
        return await self._doors.listen_on(listener, tls=tls)

    async def stop(self) -> None:
        """Take no new clients, close topics in order so that everything taken is stored, then let the clients go.

        In a cluster the bundles go first, while this broker can still tell its clients where.
        """
        if self.cluster is not None:
            await self.cluster.leave()
        self._doors.close()
        self.policy_upkeep.close()
        await self.transactions.close()
        await self.topics.close()
        if self._replication is not None:
            await self._replication.close()
        self.policies.close()
        self.schemas.close()
        for connection in self.connections:
            connection.close()
        for tasks in list(self._connections.values()):
            await tasks.close()
        if self.cluster is not None:
            await self.cluster.close()
        self.bundles.close()
        await self._tasks.close()
        await self.guard.close()
        await self.as_client.close()

    async def look_up(self, topic: TopicName, *, authoritative: bool, listener: str) -> Located:
        """Where a client finds a topic; counted."""
        with self.lookups.timed.one():
            located = await self.ownership.locate(topic, authoritative=authoritative, listener=listener)
        if located.is_redirect:
            self.lookups.redirects += 1
        else:
            self.lookups.answers += 1
        return located

    def new_producer_name(self) -> str:
        self._names_made += 1
        return f"{self.settings.cluster_name}-{self._instance}-{self._names_made}"

    def new_consumer_name(self) -> str:
        self._names_made += 1
        return f"{self._instance:x}-{self._names_made:x}"

    def new_connection(self, listener: str = "") -> Connection:
        """A client comes in, at an address that belongs to a listener or at one that belongs to none."""
        connection = Connection(self.settings, self.publish_budget, self._open_session, self._on_connection_closed)
        connection.listener = listener
        return connection

    def new_inner_connection(self, client: str, principal: Principal | None) -> Connection:
        """A client inside of this process comes in for one who came to another door: from there, and as this one."""
        connection = self.new_connection()
        connection.client, connection.principal = client, principal
        return connection

    async def _replicate(self, topic: Topic) -> None:
        """What only topics of several clusters need is made for the first of those."""
        if self._replication is None:
            named = () if topic.policies is None else topic.policies.replication_clusters
            is_elsewhere = any(cluster != self.settings.cluster_name for cluster in named)
            if not is_elsewhere and not any(map(is_replication, topic.managed_ledger.cursors)):
                return
            from magnetar.broker.replication.replication import Replication

            self._replication = Replication(
                self.settings,
                self._store,
                self.as_client,
                self.guard.settings,
                self.namespaces,
                self.schemas,
                self.clock,
                self._on_crash,
                stream(self._instance, "replication"),
            )
        await self._replication.apply(topic)

    def _in_cluster(self, clustering: "Clustering") -> "Cluster":
        """What only brokers among others need is imported by those alone."""
        from magnetar.broker.ownership.cluster import Cluster

        name = self.settings.cluster_name
        return Cluster(clustering, name, self._store, self.bundles, self.clock, self._on_crash, self.topic_places)

    def _share(self, cluster: "Cluster") -> None:
        """Serve only what the cluster's ownership says, and close what leaves."""
        self.ownership = cluster.ownership
        cluster.ownership.close_topics = self._close_topics
        cluster.reports.counts = lambda: topic_counts(self.topics)
        cluster.hold_clients = self._hold_clients
        peers = PeerRequests(
            cluster.ownership,
            self.as_client,
            self._on_crash,
            timeout_ms=self.settings.transaction_participant_timeout_ms,
        )
        self.transactions.share(peers, lambda: cluster.membership.is_leader)
        if (
            self.settings.transactions_enabled
            and self.guard.settings.authentication_enabled
            and not self.as_client.has_credentials
        ):
            _log.warning(
                "transactions over several brokers will be refused: this broker cannot say to others who it is; "
                "set brokerClientAuthenticationPlugin and brokerClientAuthenticationParameters to a super user's"
            )
        self.topics.check_served = cluster.ownership.check_served
        self.topics.on_storage_failed = cluster.ownership.on_storage_failed

    def _hold_clients(self, seconds: float) -> None:
        for connection in self.connections:
            connection.hold_back(seconds)

    async def _close_topics(self, bundle: Bundle) -> None:
        """A topic that does not close well is left to its next owner, who fences it; the others close all the same."""
        turns = asyncio.Semaphore(_CLOSED_AT_ONCE)
        await self.transactions.close_in(bundle.has)

        async def close(name: TopicName) -> None:
            async with turns:
                try:
                    await self.topics.unload(name)
                except MagnetarError as error:
                    _log.warning("closing topic %s: %s", name, error)

        await asyncio.gather(*(close(name) for name in await self.topics.present_in(bundle.has)))

    async def topic_places(self, bundle: Bundle) -> list[TopicPlace]:
        """Every topic of a bundle, served or not, with its traffic as far as it is known."""
        names = await self.topics.visible_names(bundle.namespace, ListMode.ALL)
        traffic = {} if self.cluster is None else self.cluster.reports.traffic.of_topics
        return places_of(names, traffic)

    def _open_session(self, connection: Connection) -> Session:
        self.connections_opened += 1
        if len(self._connections) >= self.settings.connections_max:
            _log.warning("refusing %s: %d connections are open already", connection.peer, len(self._connections))
            self.connections_refused += 1
            connection.close()
        address = connection.peer.rpartition(":")[0]
        of_address = self._of_address[address]
        if 0 < self.settings.connections_per_address_max <= of_address:
            _log.warning("refusing %s: %d connections are open from there already", connection.peer, of_address)
            self.connections_refused += 1
            connection.close()
        fail = partial(self._on_session_failed, connection)
        tasks = Tasks(f"session {connection.peer}", fail, tasks_max=self.settings.session_requests_max)
        self._connections[connection] = tasks
        self._of_address[address] += 1
        return Session(self, connection, tasks, SERVED, on_sends, fail)

    def _on_session_failed(self, connection: Connection, name: str, error: BaseException) -> None:
        """A command met what nobody expected: its client loses the connection, others nothing. Only what storage or
        ownership stands on takes the broker with it.
        """
        if isinstance(error, InvariantBroken):
            self._on_crash(name, error)
            return
        self.sessions_failed += 1
        message = f"closing the connection of {connection.peer}: {name} failed: {type(error).__name__}: {error}"
        asyncio.get_running_loop().call_exception_handler({"message": message})
        connection.abort()

    def _on_connection_closed(self, connection: Connection) -> None:
        tasks = self._connections.pop(connection, None)
        if tasks is None:
            return
        address = connection.peer.rpartition(":")[0]
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]
        if not self._tasks.is_closed:
            self._tasks.start(tasks.close(), "end session")
