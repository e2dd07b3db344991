# SPDX-License-Identifier: Apache-2.0
"""What dispatcher tests share: consumers on a link that only remembers, and entries to give out."""

from collections.abc import Sequence

from magnetar.broker.consumer import Consumer, Delivery, DeliveryRun
from magnetar.broker.entry_facts import EntryFacts
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry


class RememberingLink:
    def __init__(self) -> None:
        self.writable = True
        self.delivered: list[Delivery] = []
        self.active: list[bool] = []
        self.ended = 0
        self.disconnected = False

    def is_writable(self) -> bool:
        return self.writable

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        self.delivered += deliveries

    def tell_active(self, consumer: Consumer, active: bool) -> None:
        self.active.append(active)

    def tell_end_of_topic(self, consumer: Consumer) -> None:
        self.ended += 1

    def disconnect_consumer(self, consumer: Consumer) -> None:
        self.disconnected = True


def new_consumer(
    name: str,
    *,
    priority: int = 0,
    permits: int = 0,
    unacked_max: int = 0,
    key_ranges: Sequence[tuple[int, int]] = (),
) -> Consumer:
    consumer = Consumer(RememberingLink(), 1, name, priority=priority, unacked_max=unacked_max, key_ranges=key_ranges)
    consumer.on_flow(permits)
    return consumer


def link_of(consumer: Consumer) -> RememberingLink:
    assert isinstance(consumer.link, RememberingLink)
    return consumer.link


def delivery(entry_id: int, messages: int = 1, key_hash: int = 0, chunk: tuple[str, bool] | None = None) -> Delivery:
    facts = EntryFacts(0, messages)
    facts.key_hash = key_hash
    facts.chunk = chunk
    entry = Entry(1, entry_id, memoryview(b"body"))
    return Delivery(entry, Position(1, entry_id), facts, messages, (), 0)


def run_of(deliveries: Sequence[Delivery]) -> DeliveryRun:
    messages = sum(each.messages for each in deliveries)
    return DeliveryRun(deliveries, messages, sum(len(each.entry.body) for each in deliveries))


def given_ids(deliveries: Sequence[Delivery]) -> list[int]:
    return [each.position.entry_id for each in deliveries]
