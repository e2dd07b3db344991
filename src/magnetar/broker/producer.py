# SPDX-License-Identifier: Apache-2.0
"""One producer on a topic: its name, its epoch, its share of the connection's budget.

Owned by a Topic; the session keeps it by producer id. Never sends: `link` does.
Decides.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from magnetar.errors import MagnetarError


class ProducerLink(Protocol):
    """The session's side of a producer: where receipts and refusals go."""

    def send_receipts(
        self, producer: "Producer", receipts: list[tuple[int, int]], ledger_id: int, first_entry_id: int, size: int
    ) -> None:
        """Receipts (sequence id, highest sequence id) for consecutive entries from first_entry_id on.

        Size is the bytes that these messages took of the connection's budget.
        """

    def send_refusal(self, producer: "Producer", sequence_id: int, size: int, error: MagnetarError) -> None: ...

    def disconnect_producer(self, producer: "Producer") -> None:
        """The broker closes this producer; its client looks the topic up and comes again."""


class Producer:
    __slots__ = (
        "bytes_in",
        "connected_ms",
        "epoch",
        "is_closed",
        "link",
        "messages_in",
        "metadata",
        "name",
        "name_generated",
        "on_drained",
        "pending",
        "producer_id",
    )

    def __init__(
        self,
        link: ProducerLink,
        producer_id: int,
        name: str,
        *,
        name_generated: bool,
        epoch: int,
        connected_ms: int = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.link = link
        self.producer_id = producer_id
        self.name = name
        self.name_generated = name_generated
        self.epoch = epoch
        self.connected_ms = connected_ms
        self.metadata = dict(metadata or {})
        self.messages_in = 0
        self.bytes_in = 0
        self.is_closed = False
        # Messages on their way to storage; a producer that closes is answered when the last of them is.
        self.pending = 0
        self.on_drained: Callable[[], None] | None = None

    def on_stored(self, count: int) -> None:
        self.pending -= count
        assert self.pending >= 0, f"producer {self.name} got more receipts than it sent messages"
        if self.pending == 0 and self.on_drained is not None:
            self.on_drained()

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
