# SPDX-License-Identifier: Apache-2.0
"""Replicated subscriptions of one topic: tells other clusters how far they are, and follows what those tell.

Owns the snapshots of the topic and the task that takes them, while a subscription here is replicated. A snapshot is
taken when messages came since the last and every other cluster is connected; a subscription that has passed one tells
it. Only mark-delete travels: what was acknowledged behind it is delivered again over there. Never moves a subscription
back.
Carries.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from magnetar.broker.producer import Producer
from magnetar.broker.replication import markers
from magnetar.broker.replication.parts import ReplicationParts
from magnetar.broker.replication.replicated import is_replicated, mark_replicated
from magnetar.broker.replication.snapshots import KeptSnapshots, Snapshot, SnapshotRound
from magnetar.broker.subscription import Subscription
from magnetar.errors import BadFrame, MagnetarError, OwnerClosed, TooManyRequests
from magnetar.ids import EARLIEST, Position
from magnetar.wire.proto import pulsar_markers_pb2 as pb
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata

if TYPE_CHECKING:
    from magnetar.broker.replication.replicator import Replicator
    from magnetar.broker.topic import Topic

# Subscriptions of other clusters that are followed at one time.
_MOVES_MAX: Final = 100

_log = logging.getLogger(__name__)


class SubscriptionPlaces:
    def __init__(self, topic: "Topic", parts: ReplicationParts, replicators: Mapping[str, "Replicator"]) -> None:
        settings = parts.settings
        self.snapshots = KeptSnapshots(settings.replicated_snapshots_max)
        self._topic = topic
        self._parts = parts
        self._replicators = replicators
        self._producer = Producer(_NoLink(), 0, markers.PRODUCER_NAME, name_generated=True, epoch=0)
        self._taking: asyncio.Task[None] | None = None
        self._moves: set[asyncio.Task[None]] = set()
        self._round: SnapshotRound | None = None
        # By cluster: up to where its markers are dealt with.
        self._seen: dict[str, Position] = {}
        self._loaded_through = topic.managed_ledger.last_confirmed
        # Markers since the topic was loaded; with them, the messages when the last snapshot was begun.
        self._markers = 0
        self._messages_then = -1
        # By subscription: the place that was last told.
        self._told: dict[str, Position] = {}
        self._is_closed = False

    def watch(self) -> None:
        """A subscription here is replicated, or may be: take snapshots from now on."""
        if self._taking is None and not self._is_closed and self._parts.settings.replicated_subscriptions_enabled:
            self._taking = self._parts.tasks.start(self._take_snapshots(), f"snapshots of {self._topic.name}")

    async def close(self) -> None:
        self._is_closed = True
        tasks = [*self._moves, *([self._taking] if self._taking is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- telling ------------------------------------------------------------------------------------

    async def _take_snapshots(self) -> None:
        while True:
            await asyncio.sleep(self._parts.settings.replicated_snapshot_interval_ms / 1000)
            replicated = [each for each in self._topic.subscriptions.values() if is_replicated(each.cursor)]
            if replicated and not self._topic.managed_ledger.is_terminated:
                try:
                    self._tell(replicated)
                    self._begin_round()
                except MagnetarError as error:
                    _log.info("%s: no snapshot for replicated subscriptions now: %s", self._topic.name, error)

    def _tell(self, replicated: list[Subscription]) -> None:
        for subscription in replicated:
            passed = self.snapshots.passed(subscription.cursor.mark_delete)
            if passed is not None and passed.here > self._told.get(subscription.name, EARLIEST):
                self._write(markers.update(subscription.name, passed.there, self._now_ms()))
                self._told[subscription.name] = passed.here
        names = {subscription.name for subscription in replicated}
        for name in [name for name in self._told if name not in names]:
            del self._told[name]
        self.snapshots.forget_before(min(subscription.cursor.mark_delete for subscription in replicated))

    def _begin_round(self) -> None:
        now_ms, settings = self._now_ms(), self._parts.settings
        if self._round is not None:
            if now_ms - self._round.started_ms < settings.replicated_snapshot_timeout_s * 1000:
                return
            self._round = None
        messages = self._topic.messages_in - self._markers
        is_connected = all(replicator.is_connected for replicator in self._replicators.values())
        if messages <= self._messages_then or not self._replicators or not is_connected:
            return
        snapshot_id = str(UUID(int=self._parts.random.getrandbits(128), version=4))
        self._write(markers.request(snapshot_id, self._parts.cluster, now_ms))
        self._messages_then = messages
        self._round = SnapshotRound(snapshot_id, tuple(self._replicators), now_ms)

    def _write(self, payload: bytes) -> None:
        self._topic.publish(self._producer, 0, 0, 1, payload, is_marker=True)
        self._markers += 1

    def _now_ms(self) -> int:
        return self._parts.clock.now_ms()

    # --- being told ---------------------------------------------------------------------------------

    def on_marker(self, here: Position, metadata: MessageMetadata, payload: bytes) -> None:
        """Another cluster's marker was read at this place; read again, it is passed over."""
        origin = metadata.replicated_from
        if here <= self._seen.get(origin, EARLIEST):
            return
        self._seen[origin] = here
        if here > self._loaded_through:
            self._markers += 1
        if not self._parts.settings.replicated_subscriptions_enabled:
            return
        try:
            marker = markers.read(metadata, payload)
            if isinstance(marker, pb.ReplicatedSubscriptionsSnapshotRequest):
                end = self._topic.managed_ledger.last_confirmed
                answer = markers.response(marker.snapshot_id, self._parts.cluster, end, self._now_ms(), asker=origin)
                self._write(answer)
            elif isinstance(marker, pb.ReplicatedSubscriptionsSnapshotResponse):
                self._on_response(marker, here)
            elif isinstance(marker, pb.ReplicatedSubscriptionsUpdate):
                self._on_update(marker)
        except BadFrame as error:
            _log.warning("%s: a marker of cluster %s at %s is passed over: %s", self._topic.name, origin, here, error)
        except MagnetarError as error:
            _log.info("%s: a marker of cluster %s is not answered: %s", self._topic.name, origin, error)

    def _on_response(self, marker: pb.ReplicatedSubscriptionsSnapshotResponse, here: Position) -> None:
        round_ = self._round
        if round_ is None or marker.snapshot_id != round_.snapshot_id:
            return
        place = markers.place_in([marker.cluster], marker.cluster.cluster)
        assert place is not None
        outcome = round_.on_response(marker.cluster.cluster, place, here)
        if isinstance(outcome, Snapshot):
            self._round = None
            self.snapshots.add(outcome)
            self._write(markers.snapshot(marker.snapshot_id, self._parts.cluster, here, outcome.there, self._now_ms()))
        elif outcome:
            self._write(markers.request(marker.snapshot_id, self._parts.cluster, self._now_ms()))

    def _on_update(self, marker: pb.ReplicatedSubscriptionsUpdate) -> None:
        place = markers.place_in(marker.clusters, self._parts.cluster)
        if place is None or self._is_closed:
            return
        if len(self._moves) >= _MOVES_MAX:
            raise TooManyRequests(f"{_MOVES_MAX} subscriptions are being moved already; the next update says it again")
        try:
            move = self._parts.tasks.start(
                self._move(marker.subscription_name, place), "move a replicated subscription"
            )
        except OwnerClosed:
            return
        self._moves.add(move)
        move.add_done_callback(self._moves.discard)

    async def _move(self, name: str, place: Position) -> None:
        """One that is not here yet begins at the first message: what lies before its place was consumed elsewhere."""
        try:
            subscription = self._topic.subscriptions.get(name)
            if subscription is None:
                subscription = await self._topic.open_subscription(name, initial=EARLIEST)
            if not subscription.cursor.is_durable:
                return
            await mark_replicated(subscription.cursor, True)
            self.watch()
            place = min(place, self._topic.managed_ledger.last_confirmed)
            if place > subscription.cursor.mark_delete:
                subscription.skip_through(place)
        except MagnetarError as error:
            _log.warning("%s: subscription %s is not moved to %s: %s", self._topic.name, name, place, error)


class _NoLink:
    """Markers are nobody's: what becomes of one is seen in the log."""

    def send_refusal(self, producer: Producer, sequence_id: int, size: int, error: MagnetarError) -> None:
        """The next snapshot makes up for it."""

    def send_receipts(
        self, producer: Producer, receipts: list[tuple[int, int]], ledger_id: int, first_entry_id: int, size: int
    ) -> None: ...

    def send_duplicate_receipt(self, producer: Producer, sequence_id: int, highest_sequence_id: int, size: int) -> None:
        """Markers are never deduplicated."""

    def hold_back(self, seconds: float) -> None:
        """There is one a second at most."""

    async def is_alive(self) -> bool:
        return True

    def disconnect_producer(self, producer: Producer) -> None:
        """It is in nobody's session."""
