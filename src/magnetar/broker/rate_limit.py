# SPDX-License-Identifier: Apache-2.0
"""Rates: how many messages and bytes may pass, and how long whoever passed too many must wait.

A bucket holds what may pass at once and fills up with time. Taking never fails: what has come is taken, the bucket goes
below zero, and the answer is how long nothing more should come. So a message larger than the bucket still passes, and
the rate holds in the mean. Time is given by the caller, in seconds of a clock that does not jump.
Decides.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

_PLENTY: Final = 2**31


class Rate(NamedTuple):
    """Messages and bytes per period; 0 means no limit."""

    messages: int = 0
    bytes: int = 0
    period_s: float = 1.0

    @property
    def is_limited(self) -> bool:
        return self.messages > 0 or self.bytes > 0


class TokenBucket:
    __slots__ = ("_filled_s", "_per_s", "_tokens", "capacity")

    def __init__(self, amount: int, period_s: float, now_s: float) -> None:
        """Full at first: so much may pass per period, and at most so much at once."""
        self.capacity = float(amount)
        self._per_s = amount / period_s
        self._tokens = self.capacity
        self._filled_s = now_s

    def available(self, now_s: float) -> float:
        """What may pass now; below zero when more has passed than was allowed."""
        if now_s > self._filled_s:
            self._tokens = min(self.capacity, self._tokens + (now_s - self._filled_s) * self._per_s)
            self._filled_s = now_s
        return self._tokens

    def take(self, amount: int, now_s: float) -> float:
        """Count what passes; returns the seconds until the bucket is above zero again."""
        self._tokens = self.available(now_s) - amount
        return self.wait_s(now_s)

    def wait_s(self, now_s: float) -> float:
        tokens = self.available(now_s)
        return 0.0 if tokens > 0 else (1 - tokens) / self._per_s

    def until_one_s(self, now_s: float) -> float:
        """Seconds until a whole one may pass."""
        return max(0.0, 1 - self.available(now_s)) / self._per_s

    def adjust(self, amount: int, period_s: float, now_s: float) -> None:
        """Another rate from now on; what was counted stays counted."""
        self._tokens = min(self.available(now_s), float(amount))
        self.capacity = float(amount)
        self._per_s = amount / period_s


class RateLimiter:
    """Messages and bytes under one rate: whichever is used up first holds both back."""

    __slots__ = ("_bytes", "_messages", "rate")

    def __init__(self, rate: Rate, now_s: float) -> None:
        self.rate = rate
        self._messages = TokenBucket(rate.messages, rate.period_s, now_s) if rate.messages > 0 else None
        self._bytes = TokenBucket(rate.bytes, rate.period_s, now_s) if rate.bytes > 0 else None

    def take(self, messages: int, size: int, now_s: float) -> float:
        """Count what passes; returns the seconds for which nothing more should come."""
        wait_s = 0.0
        if self._messages is not None:
            wait_s = self._messages.take(messages, now_s)
        if self._bytes is not None:
            wait_s = max(wait_s, self._bytes.take(size, now_s))
        return wait_s

    def adjust(self, rate: Rate, now_s: float) -> None:
        """Other amounts of what is limited already; what was counted stays counted."""
        self.rate = rate
        if self._messages is not None:
            self._messages.adjust(rate.messages, rate.period_s, now_s)
        if self._bytes is not None:
            self._bytes.adjust(rate.bytes, rate.period_s, now_s)

    def room(self, now_s: float) -> tuple[int, int]:
        """Messages and bytes that may pass now; -1 where there is no limit. For a dispatcher, before it reads."""
        messages = -1 if self._messages is None else max(0, int(self._messages.available(now_s)))
        size = -1 if self._bytes is None else max(0, int(self._bytes.available(now_s)))
        return messages, size

    def wait_s(self, now_s: float) -> float:
        """Seconds until `room` has some again; 0 when it has now."""
        waits = [bucket.until_one_s(now_s) for bucket in (self._messages, self._bytes) if bucket is not None]
        return max(waits, default=0.0)


def limiter_for(rate: Rate, present: RateLimiter | None, now_s: float) -> RateLimiter | None:
    """The limiter for a rate: the present one when the rate has not changed, None when there is no limit."""
    if not rate.is_limited:
        return None
    if present is not None and present.rate == rate:
        return present
    return RateLimiter(rate, now_s)


class NamedLimit:
    """A limiter with a name and a clock, as dispatch asks for it; several subscriptions may share one."""

    __slots__ = ("_limiter", "_now_s", "name")

    def __init__(self, name: str, rate: Rate, now_s: Callable[[], float]) -> None:
        self.name = name
        self._limiter = RateLimiter(rate, now_s())
        self._now_s = now_s

    @property
    def rate(self) -> Rate:
        return self._limiter.rate

    def available(self) -> tuple[int, int]:
        """Messages and bytes that may go out now; zero of either means none."""
        messages, size = self._limiter.room(self._now_s())
        return messages if messages >= 0 else _PLENTY, size if size >= 0 else _PLENTY

    def consume(self, messages: int, size_bytes: int) -> None:
        self._limiter.take(messages, size_bytes, self._now_s())

    def delay_s(self) -> float:
        """Seconds until something is available again."""
        return self._limiter.wait_s(self._now_s())


def named_limit(name: str, rate: Rate, present: NamedLimit | None, now_s: Callable[[], float]) -> NamedLimit | None:
    """The limit for a rate: the present one when the rate has not changed, None when there is no limit."""
    if not rate.is_limited:
        return None
    if present is not None and present.rate == rate:
        return present
    return NamedLimit(name, rate, now_s)


class RelativeLimit:
    """A rate on top of another one that changes: what comes in may go out again, and so much more.

    `counted` tells how many messages and bytes have come in since ever; the rate is measured over the last whole
    seconds whenever it is asked for.
    """

    __slots__ = ("_counted", "_limiter", "_measured", "_measured_s", "_now_s", "name", "rate")

    def __init__(
        self, name: str, rate: Rate, counted: Callable[[], tuple[int, int]], now_s: Callable[[], float]
    ) -> None:
        self.name = name
        self.rate = rate
        self._counted = counted
        self._now_s = now_s
        self._measured = counted()
        self._measured_s = now_s()
        self._limiter = RateLimiter(rate, self._measured_s)

    def available(self) -> tuple[int, int]:
        now_s = self._now_s()
        if now_s - self._measured_s >= 1.0:
            self._measure(now_s)
        messages, size = self._limiter.room(now_s)
        return messages if messages >= 0 else _PLENTY, size if size >= 0 else _PLENTY

    def consume(self, messages: int, size_bytes: int) -> None:
        self._limiter.take(messages, size_bytes, self._now_s())

    def delay_s(self) -> float:
        return self._limiter.wait_s(self._now_s())

    def _measure(self, now_s: float) -> None:
        before, self._measured = self._measured, self._counted()
        share = self.rate.period_s / (now_s - self._measured_s)
        self._measured_s = now_s
        extra = [int((now - then) * share) for now, then in zip(self._measured, before, strict=True)]
        messages = self.rate.messages + extra[0] if self.rate.messages > 0 else 0
        size = self.rate.bytes + extra[1] if self.rate.bytes > 0 else 0
        self._limiter.adjust(Rate(messages, size, self.rate.period_s), now_s)


class CallLimiter:
    """How often each of many callers may do something in a period (subscribe, for example); bounded in callers."""

    __slots__ = ("_buckets", "_callers_max", "calls", "period_s")

    def __init__(self, calls: int, period_s: float, callers_max: int = 10_000) -> None:
        self.calls = calls
        self.period_s = period_s
        self._callers_max = callers_max
        self._buckets: dict[str, TokenBucket] = {}

    def may_call(self, caller: str, now_s: float) -> bool:
        """Count a call when it is allowed; False when this caller has used up its share."""
        bucket = self._buckets.pop(caller, None) or TokenBucket(self.calls, self.period_s, now_s)
        # The most recent caller goes last; a caller forgotten at the bound starts over with a full share.
        self._buckets[caller] = bucket
        if len(self._buckets) > self._callers_max:
            del self._buckets[next(iter(self._buckets))]
        if bucket.available(now_s) < 1:
            return False
        bucket.take(1, now_s)
        return True


def call_limiter(calls: int, period_s: float, present: CallLimiter | None) -> CallLimiter | None:
    """What limits to so many calls: the present one when it does already; None without a limit."""
    if calls <= 0:
        return None
    if present is not None and (present.calls, present.period_s) == (calls, period_s):
        return present
    return CallLimiter(calls, period_s)
