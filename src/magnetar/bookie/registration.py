# SPDX-License-Identifier: Apache-2.0
"""A bookie's records in the metadata: who it is (cookie, instance), how often it started, and where it is listed.

Owns the listing, which is ephemeral: among the writable bookies or the read-only ones, whichever is true, claimed again
after every lost session. A listing that a former life of this bookie left is taken over; one of another bookie with
the same name is waited for, and the cookie has refused that one or us before.
Carries.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from magnetar.errors import BadCookie, BadVersion, MetadataError
from magnetar.metadata.coordination import Claim, Coordination
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper import cookie
from magnetar.wire.bookkeeper.cookie import Cookie
from magnetar.wire.bookkeeper.registry import AVAILABLE, BOOTS, COOKIES, INSTANCE_ID, READONLY

_log = logging.getLogger(__name__)


async def instance_id(store: MetadataStore, fresh: str) -> str:
    """The id of this cluster's storage; `fresh` becomes it when there is none yet."""
    while True:
        record = await store.get(INSTANCE_ID)
        if record is not None:
            return record.value.decode()
        with contextlib.suppress(BadVersion):
            await store.put(INSTANCE_ID, fresh.encode(), expected_version=MUST_NOT_EXIST)


async def registered_cookie(store: MetadataStore, bookie: str) -> Cookie | None:
    record = await store.get(f"{COOKIES}/{bookie}")
    return None if record is None else cookie.decode(record.value)


async def register_cookie(store: MetadataStore, own: Cookie) -> None:
    """Known from now on: a start without its directories is refused. BadCookie when somebody else was quicker."""
    try:
        await store.put(f"{COOKIES}/{own.bookie_id}", cookie.encode(own), expected_version=MUST_NOT_EXIST)
    except BadVersion:
        raise BadCookie(
            f"another bookie has been registered as {own.bookie_id} while this one started: give it another bookie id. "
            "Its directories carry no cookie any more"
        ) from None


async def known_boots(store: MetadataStore, bookie: str) -> int:
    record = await store.get(f"{BOOTS}/{bookie}")
    return int(record.value) if record is not None else 0


async def note_boots(store: MetadataStore, bookie: str, boots: int) -> None:
    await store.put(f"{BOOTS}/{bookie}", str(boots).encode())


class Listing:
    """Where clients find a bookie; kept true until withdrawn."""

    def __init__(
        self,
        store: MetadataStore,
        bookie: str,
        value: bytes,
        is_read_only: Callable[[], bool],
        tasks: Tasks,
        *,
        check_interval_ms: int,
    ) -> None:
        self._bookie = bookie
        self._value = value
        self._is_read_only = is_read_only
        self._tasks = tasks
        self._check_interval_ms = check_interval_ms
        self._coordination = Coordination(store, tasks)
        self._claim: Claim | None = None
        self._listed_read_only = False
        self._watch: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Be listed. Returns when that is so, or when a listing of somebody else is in the way and is waited for."""
        self._listed_read_only = self._is_read_only()
        self._claim = self._claimed(self._listed_read_only)
        await self._claim.settled()
        if not self._claim.is_held:
            _log.warning("%s is listed by another session; this one takes its place when that ends", self._bookie)
        self._watch = self._tasks.start(self._watch_over(), "listing")

    async def withdraw(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await self._coordination.close()

    async def _watch_over(self) -> None:
        while True:
            await asyncio.sleep(self._check_interval_ms / 1000)
            read_only = self._is_read_only()
            if read_only != self._listed_read_only:
                await self._move(read_only)

    async def _move(self, read_only: bool) -> None:
        """The new listing first: a bookie in both lists counts as read-only, one in neither as lost."""
        before, self._claim = self._claim, self._claimed(read_only)
        self._listed_read_only = read_only
        await self._claim.settled()
        if before is not None:
            with contextlib.suppress(MetadataError):
                await before.release()
        _log.warning("%s is listed as %s now", self._bookie, "read-only" if read_only else "writable")

    def _claimed(self, read_only: bool) -> Claim:
        parent = READONLY if read_only else AVAILABLE
        return self._coordination.candidate(f"{parent}/{self._bookie}", self._value)
