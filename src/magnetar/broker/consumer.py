# SPDX-License-Identifier: Apache-2.0
"""One consumer of a subscription: its permits, and what it was given and has not acknowledged.

Owned by a Subscription, fed by its dispatcher, told of acks by the session. Pending entries are kept only for the
types that redeliver single entries (Shared, Key_Shared). Never sends: `link` does.

Invariant: unacked equals the sum of the messages of all pending entries.
Decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from magnetar.broker.entry_facts import EntryFacts
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry

EPOCH_NONE = -1
# What clients that read statistics can count.
PERMITS_MAX: Final = 2**31 - 1


class Delivery(NamedTuple):
    """One entry on its way out: read, not acknowledged, visible now."""

    entry: Entry
    position: Position
    facts: EntryFacts
    # Messages of it that are still unacknowledged.
    messages: int
    # Bits of a batch that are still unacknowledged, as Pulsar's clients send them; empty means all.
    ack_set: Sequence[int]
    redelivery_count: int


# NamedTuple's own constructor costs twice as much, once per entry and consumer.
new_delivery = partial(tuple.__new__, Delivery)


class DeliveryRun(list[Delivery]):
    """Deliveries of entries of which nothing sets one apart: whole, for the first time, no parts of chunked messages.

    Never changed: subscriptions that read the same entries share it. A slice of it is a plain list.
    """

    __slots__ = ("messages", "size_bytes")

    def __init__(self, deliveries: Sequence[Delivery], messages: int, size_bytes: int) -> None:
        super().__init__(deliveries)
        self.messages = messages
        # What consumers get of it, without what the broker put in front.
        self.size_bytes = size_bytes

    @property
    def is_single(self) -> bool:
        """Whether no entry has more than one message."""
        return self.messages == len(self)


class ConsumerLink(Protocol):
    """The session's side of a consumer: where deliveries and notices go."""

    def is_writable(self) -> bool: ...

    def deliver(self, consumer: "Consumer", deliveries: Sequence[Delivery]) -> None: ...

    def tell_active(self, consumer: "Consumer", active: bool) -> None: ...

    def tell_end_of_topic(self, consumer: "Consumer") -> None: ...

    def disconnect_consumer(self, consumer: "Consumer") -> None:
        """The broker closes this consumer; its client looks the topic up and subscribes again."""


class Consumer:
    __slots__ = (
        "acked_ms",
        "bytes_out",
        "chunks_out",
        "connected_ms",
        "consumed_ms",
        "consumer_id",
        "entries_out",
        "epoch",
        "flow_ms",
        "key_ranges",
        "link",
        "messages_acked",
        "messages_out",
        "messages_redelivered",
        "metadata",
        "name",
        "pending",
        "permits",
        "priority",
        "told_end_of_topic",
        "unacked",
        "unacked_max",
    )

    def __init__(
        self,
        link: ConsumerLink,
        consumer_id: int,
        name: str,
        *,
        priority: int = 0,
        unacked_max: int = 0,
        epoch: int = EPOCH_NONE,
        connected_ms: int = 0,
        metadata: Mapping[str, str] | None = None,
        key_ranges: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.link = link
        self.consumer_id = consumer_id
        self.name = name
        self.priority = priority
        self.permits = 0
        self.unacked = 0
        self.unacked_max = unacked_max
        # Counts the client's requests to redeliver all; it drops messages that carry an earlier one.
        self.epoch = epoch
        self.connected_ms = connected_ms
        self.metadata = dict(metadata or {})
        # The hash ranges that a sticky Key_Shared consumer brings, both ends included.
        self.key_ranges = tuple(key_ranges)
        self.messages_out = 0
        self.entries_out = 0
        self.bytes_out = 0
        # Parts of chunked messages.
        self.chunks_out = 0
        self.messages_redelivered = 0
        self.messages_acked = 0
        # When it last was given messages, acknowledged some, asked for more; 0: never.
        self.consumed_ms = 0
        self.acked_ms = 0
        self.flow_ms = 0
        self.told_end_of_topic = False
        self.pending: dict[Position, int] = {}

    def on_flow(self, permits: int) -> None:
        self.permits = min(self.permits + permits, PERMITS_MAX)

    def room(self) -> int:
        """Messages that may be sent to this consumer now."""
        if self.permits <= 0 or (0 < self.unacked_max <= self.unacked) or not self.link.is_writable():
            return 0
        return self.permits

    def is_blocked_by_unacked(self) -> bool:
        return 0 < self.unacked_max <= self.unacked

    def on_sent(self, messages: int, entries: int = 1) -> None:
        self.permits -= messages
        self.messages_out += messages
        self.entries_out += entries

    def hold(self, position: Position, messages: int) -> None:
        """Remember an entry until it is acknowledged."""
        assert position not in self.pending, f"{position} was given twice to consumer {self.name}"
        self.pending[position] = messages
        self.unacked += messages

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """`on_sent` and `hold` for entries of one message each."""
        held = len(self.pending)
        self.pending.update([(delivery[1], 1) for delivery in deliveries])
        count = len(deliveries)
        assert len(self.pending) == held + count, f"an entry was given twice to consumer {self.name}"
        self.unacked += count
        self.on_sent(count, count)

    def release_acked(
        self, positions: Iterable[tuple[int, int]]
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Forget entries that are acknowledged; returns those that were held, and those that were not."""
        pop = self.pending.pop
        released, others = [], []
        messages = 0
        for position in positions:
            # A position is a tuple: the table finds one by the other.
            held = pop(position, 0)  # type: ignore[call-overload]
            if held:
                messages += held
                released.append(position)
            else:
                others.append(position)
        self.unacked -= messages
        self.messages_acked += messages
        return released, others

    def release(self, position: Position) -> int:
        """Forget an entry; returns the messages that it still counted, 0 when it was not held."""
        messages = self.pending.pop(position, 0)
        self.unacked -= messages
        return messages

    def release_all(self) -> list[Position]:
        """Forget everything; returns what was held, oldest first."""
        held = sorted(self.pending)
        # A new table: one that was large does not keep its memory.
        self.pending = {}
        self.unacked = 0
        return held

    def shrink(self, position: Position, messages_left: int) -> None:
        """A part of a held batch was acknowledged."""
        held = self.pending.get(position)
        if held is not None and messages_left < held:
            self.pending[position] = messages_left
            self.unacked -= held - messages_left

    def check(self) -> None:
        assert self.unacked == sum(self.pending.values()), (self.unacked, self.pending)

    def __repr__(self) -> str:
        return f"Consumer({self.name}, {self.permits} permits, {self.unacked} unacked)"
