# SPDX-License-Identifier: Apache-2.0
"""A shadow topic: it shows another topic's messages to subscriptions of its own, and takes none itself.

Its property `PULSAR.SHADOW_SOURCE` names the other topic. The managed ledger follows that topic's ledgers, whoever
owns it; so this broker serves the readers and the owner does not notice. A broker that sends messages here with their
ids (Apache's does) only tells how far the other topic is stored: nothing is stored twice.
Carries.
"""

import logging
from collections.abc import Callable
from typing import Final

from magnetar.broker.last_index import last_index
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.policies.policies import Policies
from magnetar.broker.producer import Producer
from magnetar.broker.topic import Topic
from magnetar.broker.transactions.shadow_looks import ShadowLooks
from magnetar.errors import MagnetarError, NotSupported, OwnerClosed
from magnetar.ids import Position
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.managed_ledger.shadow_ledger import ShadowLedger
from magnetar.names import TopicName
from magnetar.wire.runs import Send

SOURCE_PROPERTY: Final = "PULSAR.SHADOW_SOURCE"

_log = logging.getLogger(__name__)


async def shadow_source(
    name: TopicName, managed_ledgers: ManagedLedgers, namespaces: Namespaces, policies: Policies
) -> TopicName | None:
    """Whose messages a topic shows; None for one that has its own. NotSupported when it must not show them.

    A topic of another namespace is shown only if its own policy `shadowTopics` says so: else whoever may make a topic
    could read every other one.
    """
    text = (await managed_ledgers.properties(name.persistence_name)).get(SOURCE_PROPERTY)
    if text is None and name.is_partition:
        text = (await namespaces.partitioned_properties(name.base)).get(SOURCE_PROPERTY)
    if text is None:
        return None
    source = TopicName.parse(text)
    if name.is_partition and not source.is_partition:
        source = source.partition(name.partition_index)
    if source == name or not source.is_persistent:
        raise NotSupported(f"Topic {name} cannot show the messages of {source}")
    if SOURCE_PROPERTY in await managed_ledgers.properties(source.persistence_name):
        raise NotSupported(f"Topic {name} cannot show the messages of {source}, which shows those of another topic")
    if source.namespace != name.namespace:
        named = (await policies.effective(source)).shadow_topics
        if name.base not in [TopicName.parse(each).base for each in named]:
            raise NotSupported(f"Topic {name} is not among the shadow topics of {source}; set them there first")
    return source


class ShadowTopic(Topic):
    _is_counting = False

    async def attach(self, managed_ledger: ManagedLedger, *, deduplicate: bool) -> None:
        await super().attach(managed_ledger, deduplicate=deduplicate)
        if self._settings.transactions_enabled:
            self.transactions.looks = ShadowLooks(
                self.transactions.buffer, managed_ledger, self._tasks, self._wake_subscriptions
            )

    async def add_producer(self, producer: Producer, on_waiting: Callable[[], None] = lambda: None) -> None:
        """Only another broker's replicator; a client is told at once, not with each message."""
        if not producer.is_replicator:
            raise NotSupported(f"Cannot send messages to a shadow topic: {self.name}")
        await super().add_producer(producer, on_waiting)

    def publish(
        self,
        producer: Producer,
        sequence_id: int,
        highest_sequence_id: int,
        messages: int,
        payload: bytes,
        *,
        is_chunk: bool = False,
        is_marker: bool = False,
    ) -> None:
        raise NotSupported(f"Cannot send messages to a shadow topic: {self.name}")

    def publish_run(self, producer: Producer, run: list[Send]) -> bool:
        return False

    def on_shown(
        self, producer: Producer, sequence_id: int, highest_sequence_id: int, position: Position, size: int
    ) -> None:
        """A message of the other topic came with its id: it is stored there, and can be read from now on."""
        ledger = self.managed_ledger
        assert isinstance(ledger, ShadowLedger)
        ledger.on_told(position)
        producer.link.send_receipts(
            producer, [(sequence_id, highest_sequence_id)], position.ledger_id, position.entry_id, size
        )

    def on_persisted(self, ledger_id: int, first_entry: int, last_entry: int) -> None:
        """The other topic has grown: count what came, and wake the readers."""
        if self.transactions.looks is None:
            self._wake_subscriptions()
        else:
            self.transactions.looks.on_grown()
        if not self._is_counting:
            try:
                self._tasks.start(self._count(), f"{self.name}: count")
                self._is_counting = True
            except MagnetarError:
                # Too busy to count, or closing: the next growth counts both.
                return

    async def truncate(self) -> None:
        raise NotSupported(f"Topic {self.name} shows another topic's messages; truncate that one")

    async def set_deduplication(self, enabled: bool) -> None:
        """Nothing is taken, so nothing comes twice."""

    async def _count(self) -> None:
        """The number of the last message is in the last entry; once for all that came meanwhile."""
        try:
            counted: Position | None = None
            while counted != self.managed_ledger.last_confirmed and self._closing is None:
                counted = self.managed_ledger.last_confirmed
                index = await last_index(self.managed_ledger)
                self.last_index = self.stored_index = max(self.stored_index, index)
        except OwnerClosed:
            return
        except MagnetarError as error:
            _log.warning("topic %s: counting what came: %s", self.name, error)
        finally:
            self._is_counting = False
