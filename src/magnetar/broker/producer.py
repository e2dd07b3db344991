# SPDX-License-Identifier: Apache-2.0
"""One producer on a topic: its name, its epoch, its share of the connection's budget.

Owned by a Topic; the session keeps it by producer id. Never sends: `link` does.
Decides.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol

from magnetar.errors import MagnetarError

REPLICATOR_PREFIX: Final = "pulsar.repl."


def replicator_name(source: str, target: str) -> str:
    """As Apache Pulsar names them: a cluster knows by it what came from where."""
    return f"{REPLICATOR_PREFIX}{source}-->{target}"


class AccessMode(Enum):
    """How a producer shares its topic with others."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class ProducerLink(Protocol):
    """The session's side of a producer: where receipts and refusals go."""

    def send_receipts(
        self, producer: "Producer", receipts: list[tuple[int, int]], ledger_id: int, first_entry_id: int, size: int
    ) -> None:
        """Receipts (sequence id, highest sequence id) for consecutive entries from first_entry_id on.

        Size is the bytes that these messages took of the connection's budget.
        """

    def send_duplicate_receipt(
        self, producer: "Producer", sequence_id: int, highest_sequence_id: int, size: int
    ) -> None:
        """The message was stored before, by an earlier SEND: acknowledged without a position."""

    def send_refusal(self, producer: "Producer", sequence_id: int, size: int, error: MagnetarError) -> None: ...

    def hold_back(self, seconds: float) -> None:
        """The producer is faster than allowed: its client is not listened to for a while."""

    async def is_alive(self) -> bool:
        """Whether the client answers; a client that does not is gone, with all that it had open, when this returns."""

    def disconnect_producer(self, producer: "Producer") -> None:
        """The broker closes this producer; its client looks the topic up and comes again."""


class Producer:
    __slots__ = (
        "access_mode",
        "bytes_in",
        "chunks_in",
        "connected_ms",
        "epoch",
        "is_closed",
        "is_replicator",
        "link",
        "messages_in",
        "metadata",
        "name",
        "name_generated",
        "on_drained",
        "pending",
        "producer_id",
        "topic_epoch",
    )

    def __init__(
        self,
        link: ProducerLink,
        producer_id: int,
        name: str,
        *,
        name_generated: bool,
        epoch: int,
        access_mode: AccessMode = AccessMode.SHARED,
        topic_epoch: int | None = None,
        connected_ms: int = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.link = link
        self.producer_id = producer_id
        self.name = name
        self.name_generated = name_generated
        # Brings messages of producers in another cluster, under their own names and sequence ids.
        self.is_replicator = name.startswith(REPLICATOR_PREFIX)
        self.epoch = epoch
        self.access_mode = access_mode
        # The topic's epoch when this client last was its exclusive producer; None for one that never was.
        self.topic_epoch = topic_epoch
        self.connected_ms = connected_ms
        self.metadata = dict(metadata or {})
        self.messages_in = 0
        self.bytes_in = 0
        self.chunks_in = 0
        self.is_closed = False
        # Messages on their way to storage; a producer that closes is answered when the last of them is.
        self.pending = 0
        self.on_drained: list[Callable[[], None]] = []

    def on_stored(self, count: int) -> None:
        self.pending -= count
        assert self.pending >= 0, f"producer {self.name} got more receipts than it sent messages"
        if self.pending == 0 and self.on_drained:
            waiting, self.on_drained = self.on_drained, []
            for tell in waiting:
                tell()

    def may_replace(self, other: "Producer") -> bool:
        """A reconnecting client takes over its own earlier registration; a stranger of the same name does not.

        A generated name belongs to one client, so a higher epoch is that client coming back on a new connection. A name
        that users chose may belong to two of them: only the same producer of the same connection is its successor.
        """
        if self.epoch <= other.epoch:
            return False
        if self.link is other.link:
            return self.producer_id == other.producer_id
        return self.name_generated and other.name_generated

    def __repr__(self) -> str:
        return f"Producer({self.name}, id {self.producer_id}, {self.access_mode.name.lower()})"
