# SPDX-License-Identifier: Apache-2.0
"""Brokers with transactions in a small world: real logs over model bookies, and a broker that may die at any moment."""

from typing import Any

from magnetar.broker.peer_requests import PeerRequests
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.pending_acks import claim_of
from magnetar.broker.transactions.transactions import Transactions
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.config.broker import BrokerSettings
from magnetar.ids import EARLIEST, Position
from magnetar.names import TopicName
from magnetar.wire import message
from magnetar.wire.broker_entry import message_start
from tests.unit.broker.publishers import Brokers, Client, body_of, producer_of

SOURCE = TopicName.parse("persistent://public/default/source")
TARGETS = [TopicName.parse(f"persistent://public/default/target-{letter}") for letter in "ab"]
SETTINGS = BrokerSettings(
    transactions_enabled=True,
    transaction_coordinators=2,
    transaction_snapshot_changes=3,
    pending_ack_records_max=4,
    transactions_ended_max=50,
)


class TransactionWorld(Brokers):
    def __init__(self, **changes: Any) -> None:
        super().__init__(SETTINGS, **changes)
        self.transactions: Transactions
        # How it reaches other brokers, where there are some.
        self.peers: PeerRequests | None = None

    async def open(self) -> None:
        if self._tasks is None or self._tasks.is_closed:
            await self.start()
        crashes = self.world.cluster.crashes
        self.transactions = Transactions(
            self.topics,
            self.topics.namespaces,
            self.settings,
            self.world.clock,
            lambda task, error: crashes.append(f"{task}: {error!r}"),
        )
        if self.peers is not None:
            self.transactions.share(self.peers, lambda: False)
        await self.transactions.start()

    async def stop(self) -> None:
        await self.transactions.close()
        await super().stop()

    async def die(self) -> None:
        await self.transactions._tasks.close()
        await super().die()

    async def restart(self) -> None:
        await self.die()
        await self.open()

    async def begin(self, timeout_ms: int = 60_000, coordinator: int = 0) -> tuple[Coordinator, TxnId]:
        found = await self.transactions.coordinator(coordinator)
        return found, await found.new(timeout_ms)

    async def send(self, name: TopicName, txn_id: TxnId, number: int) -> None:
        """A message in a transaction; returns when it is stored, raises when it is refused."""
        topic = await self.topic(name)
        client = Client()
        await self.transactions.admit(topic, txn_id)
        body = body_of("p", number, txnid_most_bits=txn_id.most, txnid_least_bits=txn_id.least)
        topic.transactions.publish(txn_id, producer_of(client), number, 0, 1, body)
        await client.until_answers(1)
        if client.errors:
            raise client.errors[0]

    async def send_plain(self, name: TopicName, number: int) -> Position:
        topic = await self.topic(name)
        client = Client()
        topic.publish(producer_of(client), number, 0, 1, body_of("p", number))
        await client.until_answers(1)
        assert not client.errors
        return Position(*client.positions[number])

    async def subscription(self, name: TopicName = SOURCE) -> Subscription:
        return await (await self.topic(name)).open_subscription("s", initial=EARLIEST)

    async def ack(self, txn_id: TxnId, position: Position, name: TopicName = SOURCE) -> None:
        topic, subscription = await self.topic(name), await self.subscription(name)
        pending = await self.transactions.pending_acks(topic, subscription, txn_id)
        await pending.ack(txn_id, [claim_of(position, (), 0)])


async def visible(topic: Topic) -> list[int]:
    """The sequence ids of all messages that a reader from the beginning gets now."""
    log, buffer = topic.managed_ledger, topic.transactions.buffer
    found: list[int] = []
    position = log.first_position
    while position <= log.last_confirmed:
        entries = await log.read(position, entries_max=100, bytes_max=1 << 20)
        for entry in entries:
            metadata = message.read_metadata(entry.body, message_start(entry.body))
            if buffer.hides(entry.position):
                return found
            if not metadata.HasField("marker_type") and not buffer.has_aborted(entry):
                found.append(metadata.sequence_id)
        position = log.next_position(entries[-1].position)
    return found
