# SPDX-License-Identifier: Apache-2.0
"""Authentication: from what a client brought to who it is, by the methods that the operator has chosen.

A client that names a method which is not served is the anonymous role, if there is one; one whose credentials are
refused is nobody. Slow checks run beside the loop, one at a time, and what was proven once is remembered by its digest.
Carries.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from magnetar.broker.auth.authenticator import Authenticator, Credentials, Identity
from magnetar.errors import NotAuthenticated
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.clock import WallClock


class Authentication:
    def __init__(
        self, authenticators: Sequence[Authenticator], anonymous_role: str, clock: WallClock, proven_max: int
    ) -> None:
        self._by_method = {authenticator.method: authenticator for authenticator in authenticators}
        self._anonymous = Identity(anonymous_role) if anonymous_role else None
        self._clock = clock
        self._proven_max = proven_max
        self._proven: OrderedDict[bytes, Identity] = OrderedDict()
        self._calls = BlockingCalls(1, name="authentication") if any(a.is_slow for a in authenticators) else None

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self._by_method)

    async def identify(self, method: str, credentials: Credentials) -> Identity:
        """Who this is. NotAuthenticated when nothing proves it and nobody may be anonymous."""
        authenticator = self._by_method.get(method)
        if authenticator is None:
            if self._anonymous is None:
                raise NotAuthenticated("Authentication required: there is no anonymous role")
            return self._anonymous
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
