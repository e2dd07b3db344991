# SPDX-License-Identifier: Apache-2.0
"""How fast a topic's messages may go out: the broker's limit, its group's, the topic's, and one for each subscription.

Owns the limits of one topic and gives each subscription those that hold for it. A rate that changes holds at once; one
that does not keeps what it has counted. A rate that is relative comes on top of what the topic takes in.
Decides.
"""

from collections.abc import Callable, Mapping

from magnetar.broker.dispatch.hooks import DispatchLimit
from magnetar.broker.policies.values import DispatchRate
from magnetar.broker.rate_limit import NamedLimit, Rate, RelativeLimit, named_limit
from magnetar.broker.subscription import Subscription
from magnetar.config.broker import BrokerSettings

OwnLimit = NamedLimit | RelativeLimit


def rate_of(policy: DispatchRate) -> Rate:
    return Rate(max(0, policy.messages), max(0, policy.bytes), float(policy.period_s))


class DispatchRates:
    __slots__ = (
        "_counted_in",
        "_named",
        "_now_s",
        "_of_broker",
        "_of_group",
        "_of_topic",
        "_per_subscription",
        "_policy",
        "_subscriptions",
        "_topic",
    )

    def __init__(
        self,
        topic: str,
        settings: BrokerSettings,
        subscriptions: Mapping[str, Subscription],
        now_s: Callable[[], float],
        *,
        counted_in: Callable[[], tuple[int, int]],
    ) -> None:
        self._topic = topic
        self._subscriptions = subscriptions
        self._now_s = now_s
        # Messages and bytes that the topic has taken in.
        self._counted_in = counted_in
        self._of_broker: NamedLimit | None = None
        self._of_group: NamedLimit | None = None
        self._of_topic: OwnLimit | None = None
        # The rate of each subscription, and the limits that have been made for it.
        self._policy = DispatchRate(
            settings.subscription_dispatch_messages_per_s, settings.subscription_dispatch_bytes_per_s
        )
        self._named: Mapping[str, DispatchRate] = {}
        self._per_subscription: dict[str, OwnLimit] = {}
        self.limit_topic(DispatchRate(settings.topic_dispatch_messages_per_s, settings.topic_dispatch_bytes_per_s))

    def limit_topic(self, policy: DispatchRate) -> None:
        self._of_topic = self._limit(f"dispatch rate of topic {self._topic}", policy, self._of_topic)
        self._apply()

    def limit_subscriptions(self, policy: DispatchRate, named: Mapping[str, DispatchRate] | None = None) -> None:
        """So much for each subscription; those that are named have their own."""
        self._policy = policy
        self._named = named or {}
        self._apply()

    def limit_broker(self, limit: NamedLimit | None) -> None:
        """The limit that all topics of the broker share."""
        self._of_broker = limit
        self._apply()

    def limit_group(self, limit: NamedLimit | None) -> None:
        """The limit that all topics of a resource group share."""
        self._of_group = limit
        self._apply()

    def apply(self, subscription: Subscription) -> None:
        """Give a subscription the limits that hold for it now."""
        name = subscription.name
        policy = self._named.get(name, self._policy)
        own = self._limit(f"dispatch rate of subscription {name}", policy, self._per_subscription.get(name))
        if own is not None:
            self._per_subscription[name] = own
        else:
            self._per_subscription.pop(name, None)
        limits: tuple[DispatchLimit | None, ...] = (
            self._of_broker,
            self._of_group,
            self._of_topic,
            own,
            subscription.unsaved_acks,
        )
        subscription.pump.limits = tuple(limit for limit in limits if limit is not None)
        subscription.pump.wake()

    def forget(self, subscription_name: str) -> None:
        self._per_subscription.pop(subscription_name, None)

    def _apply(self) -> None:
        for subscription in self._subscriptions.values():
            self.apply(subscription)

    def _limit(self, name: str, policy: DispatchRate, present: OwnLimit | None) -> OwnLimit | None:
        rate = rate_of(policy)
        if not policy.relative_to_publish:
            return named_limit(name, rate, present if isinstance(present, NamedLimit) else None, self._now_s)
        if not rate.is_limited:
            return None
        if isinstance(present, RelativeLimit) and present.rate == rate:
            return present
        return RelativeLimit(name, rate, self._counted_in, self._now_s)
