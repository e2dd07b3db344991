# SPDX-License-Identifier: Apache-2.0
"""Authentication: from what a client brought to who it is, by the methods that the operator has chosen.

A client that names a method which is not served is the anonymous role, if there is one; one whose credentials are
refused is nobody. Slow checks run beside the loop, one at a time, and what was proven once is remembered by its digest.
Carries.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from magnetar.broker.auth.authenticator import Authenticator, Credentials, Identity
from magnetar.broker.auth.login_turns import LoginTurns
from magnetar.errors import MagnetarError, NotAuthenticated
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.clock import WallClock


class Authentication:
    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        anonymous_role: str,
        clock: WallClock,
        proven_max: int,
        upkeep: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        login_pause_max_ms: int = 5_000,
    ) -> None:
        # Several may share a method: the first that proves a role decides.
        self._by_method: dict[str, list[Authenticator]] = {}
        for each in authenticators:
            self._by_method.setdefault(each.method, []).append(each)
        # What runs as long as the broker does: keys and lists that are read again.
        self.upkeep = tuple(upkeep)
        self._anonymous = Identity(anonymous_role) if anonymous_role else None
        self._clock = clock
        self._proven_max = proven_max
        self._proven: OrderedDict[bytes, Identity] = OrderedDict()
        self.successes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._turns = LoginTurns(login_pause_max_ms / 1000)
        self._calls = BlockingCalls(1, name="authentication") if any(a.is_slow for a in authenticators) else None

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self._by_method)

    async def identify(self, method: str, credentials: Credentials) -> Identity:
        """Who this is. NotAuthenticated when nothing proves it and nobody may be anonymous; later and later for an
        address from which that happens again and again.
        """
        if not credentials.address:
            return await self._identify_by(method, credentials)
        # Anybody may name a method: only those that are served are counted by name.
        counted = method if method in self._by_method else "none"
        try:
            identity = await self._turns.check(credentials.address, lambda: self._identify_by(method, credentials))
        except MagnetarError:
            self.failures[counted] += 1
            raise
        self.successes[counted] += 1
        return identity

    async def _identify_by(self, method: str, credentials: Credentials) -> Identity:
        named = self._by_method.get(method)
        if named is None:
            if self._anonymous is None:
                raise NotAuthenticated("Authentication required: there is no anonymous role")
            return self._anonymous
        for authenticator in named[:-1]:
            try:
                return await self._identify(authenticator, credentials)
            except NotAuthenticated:
                continue
        return await self._identify(named[-1], credentials)

    async def _identify(self, authenticator: Authenticator, credentials: Credentials) -> Identity:
        if authenticator.is_slow and self._calls is not None:
            return await self._identify_slowly(authenticator, credentials, self._calls)
        return authenticator.check(credentials, self._clock.now_ms())

    async def close(self) -> None:
        if self._calls is not None:
            await self._calls.close()

    async def _identify_slowly(
        self, authenticator: Authenticator, credentials: Credentials, calls: BlockingCalls
    ) -> Identity:
        digest = hashlib.sha256(authenticator.method.encode() + b"\0" + credentials.data).digest()
        proven = self._proven.get(digest)
        if proven is not None:
            self._proven.move_to_end(digest)
            return proven
        identity = await calls.run(authenticator.check, credentials, self._clock.now_ms())
        self._proven[digest] = identity
        if len(self._proven) > self._proven_max:
            self._proven.popitem(last=False)
        return identity
