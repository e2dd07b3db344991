# SPDX-License-Identifier: Apache-2.0
"""Back-off after failed logins, by address: whoever fails again and again waits for each next answer, in a row.

The first failures cost nothing. From then on what comes from that address is checked one after another, and a refusal
is told only after a pause that doubles; right credentials pass in their turn, so that one wrong client behind a shared
address slows the others and never shuts them out. Addresses and those who wait are bounded in number.
Carries.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.broker.auth.authenticator import Identity
from magnetar.errors import NotAuthenticated, TooManyRequests

FREE_FAILURES: Final = 3
PAUSE_S_MIN: Final = 0.1
# An address without a failure for so long is as good as any other.
FORGOTTEN_AFTER_S: Final = 60.0
WAITING_MAX: Final = 4
ADDRESSES_MAX: Final = 10_000


class _Failures:
    __slots__ = ("count", "last_s", "turn", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.last_s = 0.0
        self.waiting = 0
        self.turn = asyncio.Lock()

    @property
    def pause_s(self) -> float:
        doublings = min(self.count - FREE_FAILURES, 16)
        return 0.0 if doublings <= 0 else PAUSE_S_MIN * 2 ** (doublings - 1)


class LoginTurns:
    def __init__(self, pause_s_max: float) -> None:
        self._pause_s_max = pause_s_max
        # Least recently failed first.
        self._failed: OrderedDict[str, _Failures] = OrderedDict()

    async def check(self, address: str, identify: Callable[[], Awaitable[Identity]]) -> Identity:
        """What `identify` says. NotAuthenticated after its pause; TooManyRequests when too many wait already."""
        failures = self._recent(address)
        if failures is None or failures.count < FREE_FAILURES:
            try:
                return await identify()
            except NotAuthenticated:
                self._note(address)
                raise
        if failures.waiting >= WAITING_MAX:
            raise TooManyRequests("Too many failed logins from this address; try again later")
        failures.waiting += 1
        try:
            async with failures.turn:
                try:
                    return await identify()
                except NotAuthenticated:
                    await asyncio.sleep(min(self._pause_s_max, self._note(address).pause_s))
                    raise
        finally:
            failures.waiting -= 1

    def _recent(self, address: str) -> _Failures | None:
        failures = self._failed.get(address)
        if failures is not None and not failures.waiting and _now_s() - failures.last_s > FORGOTTEN_AFTER_S:
            del self._failed[address]
            return None
        return failures

    def _note(self, address: str) -> _Failures:
        failures = self._failed.setdefault(address, _Failures())
        self._failed.move_to_end(address)
        failures.count += 1
        failures.last_s = _now_s()
        if len(self._failed) > ADDRESSES_MAX:
            self._failed.popitem(last=False)
        return failures


def _now_s() -> float:
    return asyncio.get_running_loop().time()
