# SPDX-License-Identifier: Apache-2.0
"""How fast a topic's messages may go out: the broker's limit, the topic's, and one for each subscription.

Owns the limits of one topic and gives each subscription those that hold for it. A rate that changes holds at once; one
that does not keeps what it has counted.
Decides.
"""

from collections.abc import Callable, Mapping

from magnetar.broker.rate_limit import NamedLimit, Rate, named_limit
from magnetar.broker.subscription import Subscription


class DispatchRates:
    __slots__ = (
        "_named_rates",
        "_now_s",
        "_of_broker",
        "_of_topic",
        "_per_subscription",
        "_subscriptions",
        "_topic",
        "rate",
    )

    def __init__(
        self, topic: str, subscriptions: Mapping[str, Subscription], now_s: Callable[[], float], *, rate: Rate
    ) -> None:
        self._topic = topic
        self._subscriptions = subscriptions
        self._now_s = now_s
        self._of_broker: NamedLimit | None = None
        self._of_topic: NamedLimit | None = None
        # The rate of each subscription, and the limits that have been made for it.
        self.rate = rate
        self._named_rates: Mapping[str, Rate] = {}
        self._per_subscription: dict[str, NamedLimit] = {}

    def limit_topic(self, rate: Rate) -> None:
        self._of_topic = named_limit(f"dispatch rate of topic {self._topic}", rate, self._of_topic, self._now_s)
        self._apply()

    def limit_subscriptions(self, rate: Rate, named: Mapping[str, Rate] | None = None) -> None:
        """So much for each subscription; those that are named have their own."""
        self.rate = rate
        self._named_rates = named or {}
        self._apply()

    def limit_broker(self, limit: NamedLimit | None) -> None:
        """The limit that all topics of the broker share."""
        self._of_broker = limit
        self._apply()

    def apply(self, subscription: Subscription) -> None:
        """Give a subscription the limits that hold for it now."""
        name = subscription.name
        rate = self._named_rates.get(name, self.rate)
        own = named_limit(f"dispatch rate of subscription {name}", rate, self._per_subscription.get(name), self._now_s)
        if own is not None:
            self._per_subscription[name] = own
        else:
            self._per_subscription.pop(name, None)
        limits = (self._of_broker, self._of_topic, own)
        subscription.pump.limits = tuple(limit for limit in limits if limit is not None)
        subscription.pump.wake()

    def forget(self, subscription_name: str) -> None:
        self._per_subscription.pop(subscription_name, None)

    def _apply(self) -> None:
        for subscription in self._subscriptions.values():
            self.apply(subscription)
