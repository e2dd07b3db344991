# SPDX-License-Identifier: Apache-2.0
"""Who may come to a topic, as its policies say: consumers by number and type, producers by encryption,
both by the address they come from.

Decides.
"""

from collections.abc import Iterable

from magnetar.config.broker import BrokerSettings
from magnetar.errors import ConsumerBusy, NotSupported, ProducerBusy


def check_consumer(settings: BrokerSettings, type_label: str, on_subscription: int, on_topic: Iterable[int]) -> None:
    """Raise ConsumerBusy or NotSupported, with upstream's words, unless one more consumer of this type may come."""
    if type_label not in settings.subscription_types:
        raise NotSupported(f"Topic does not support {type_label} subscription")
    if 0 < settings.consumers_per_topic_max <= sum(on_topic):
        raise ConsumerBusy("Topic reached max consumers limit")
    if 0 < settings.consumers_per_subscription_max <= on_subscription:
        raise ConsumerBusy("Subscription reached max consumers limit")


def check_producer(settings: BrokerSettings, *, encrypts: bool) -> None:
    if settings.encryption_required and not encrypts:
        raise NotSupported("Encryption is required in the topic, but the producer does not encrypt")


def check_same_address(limit: int, present: int, what: str) -> None:
    """One more from an address that has so many on the topic already; 0 means no limit."""
    if 0 < limit <= present:
        raise (ProducerBusy if what == "producers" else ConsumerBusy)(f"Topic reached max same address {what} limit")
