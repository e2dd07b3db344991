# SPDX-License-Identifier: Apache-2.0
"""How fast a topic takes messages: its own limit, its resource group's, and the one that all of the broker share.

A rate that changes holds at once; one that does not keeps what it has counted. Never stops anyone: whoever publishes
too much is told for how long nothing more should come.
Decides.
"""

from collections.abc import Callable

from magnetar.broker.rate_limit import Rate, RateLimiter, limiter_for


class PublishRates:
    __slots__ = ("_limiters", "_now_s", "_of_broker", "_of_group", "_of_topic", "is_limited", "times_limited")

    def __init__(self, rate: Rate, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._of_broker: RateLimiter | None = None
        self._of_group: RateLimiter | None = None
        self._of_topic: RateLimiter | None = None
        self._limiters: tuple[RateLimiter, ...] = ()
        self.is_limited = False
        self.times_limited = 0
        self.limit_topic(rate)

    def limit_topic(self, rate: Rate) -> None:
        self._of_topic = limiter_for(rate, self._of_topic, self._now_s())
        self._join()

    def limit_broker(self, limiter: RateLimiter | None) -> None:
        """The limit that all topics of the broker share."""
        self._of_broker = limiter
        self._join()

    def limit_group(self, limiter: RateLimiter | None) -> None:
        """The limit that all topics of a resource group share."""
        self._of_group = limiter
        self._join()

    def take(self, messages: int, size: int) -> float:
        """Count what came; returns the seconds for which nothing more should come."""
        now_s = self._now_s()
        wait_s = max((limiter.take(messages, size, now_s) for limiter in self._limiters), default=0.0)
        self.times_limited += wait_s > 0
        return wait_s

    def _join(self) -> None:
        limiters = (self._of_topic, self._of_group, self._of_broker)
        self._limiters = tuple(limiter for limiter in limiters if limiter is not None)
        self.is_limited = bool(self._limiters)
