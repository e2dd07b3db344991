# SPDX-License-Identifier: Apache-2.0
"""What others may put into the way of dispatch: a limit on its rate, a filter on its entries.

The pump asks every limit before it reads and tells it afterwards what went out; it asks every filter about an entry
before it is given to a consumer.
Decides.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata


class DispatchLimit(Protocol):
    @property
    def name(self) -> str:
        """What is limited, for people: `dispatch rate of topic …`."""

    def available(self) -> tuple[int, int]:
        """Messages and bytes that may go out now; zero or less of either means none."""

    def consume(self, messages: int, size_bytes: int) -> None:
        """So much went out; it may exceed what was available by one entry."""

    def delay_s(self) -> float:
        """Seconds until something is available again."""


class Verdict(Enum):
    ACCEPT = "accept"
    # No consumer of the subscription gets it: it is acknowledged.
    REJECT = "reject"
    # Not now: it is asked about again later.
    RESCHEDULE = "reschedule"


class EntryFilter(Protocol):
    def verdict(
        self, entry: Entry, position: Position, metadata: MessageMetadata, properties: Mapping[str, str]
    ) -> Verdict:
        """Properties are the subscription's."""
