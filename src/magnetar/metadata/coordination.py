# SPDX-License-Identifier: Apache-2.0
"""Ownership over any metadata store: locks and leader election, through lost and regained sessions.

A claim wants to hold one path: an ephemeral record whose value names the holder. A lock is a claim that gives up when
someone else holds it; a candidate is one that waits for its turn. Both survive deletion by others and replaced
sessions by claiming again, and both only believe: two may think that they hold a path while a session dies. What is
written under a claim must therefore be guarded below: by a ledger's fence, by record versions, or by the claim's
epoch, which rises with every holder.
Carries.
"""

import asyncio
import contextlib
from collections.abc import Callable
from enum import Enum
from typing import Final

from magnetar.errors import BadVersion, LockHeld, MetadataError, NoRecord, StoreGivenUp
from magnetar.metadata.store import MUST_NOT_EXIST, Change, MetadataStore, SessionEvent
from magnetar.runtime.tasks import Tasks

# A missed watch costs at most this long: every claim looks again by itself.
RECHECK_MS: Final = 30_000
RETRY_MS: Final = 1_000


class ClaimState(Enum):
    SEEKING = "seeking"
    HELD = "held"
    # Disconnected: nobody can tell whether it is still held.
    UNCERTAIN = "uncertain"
    # The session ended, or the record was taken away: it is not held.
    LOST = "lost"
    HELD_BY_OTHER = "held by other"
    RELEASED = "released"


class Claim:
    """The wish to hold one path. Made by Coordination; `state` is what is known now, and each change is told."""

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        value: bytes,
        *,
        patient: bool,
        epoch_path: str | None,
        on_state: Callable[["Claim"], None] | None,
        on_left: Callable[["Claim"], None],
    ) -> None:
        self.path = path
        self.value = value
        self.state = ClaimState.SEEKING
        self.holder: bytes | None = None
        # Version of our record, and a number that rises with every holder (0 without epoch_path).
        self.version = MUST_NOT_EXIST
        self.epoch = 0
        # What an update whose outcome is unknown may have written.
        self._intended = value
        self._store = store
        self._patient = patient
        self._epoch_path = epoch_path
        self._on_state = on_state
        # Told when this claim has ended and its record may still be there.
        self._on_left = on_left
        self._may_exist = False
        self._wake = asyncio.Event()
        # A look at the record while our own change of it is under way would take it for someone else's.
        self._turn = asyncio.Lock()
        self._settled = asyncio.Event()
        self._session_lost = False
        self._ended = False
        self._unwatch = store.watch(path, self._on_change)
        self._unwatch_session = store.watch_session(self._on_session)

    @property
    def is_held(self) -> bool:
        return self.state is ClaimState.HELD

    @property
    def has_ended(self) -> bool:
        """Nothing is claimed by it any more."""
        return self._ended

    async def settled(self) -> None:
        """Wait until it is known who holds the path."""
        await self._settled.wait()

    async def update(self, value: bytes) -> None:
        """Change what our record says. BadVersion: it is not ours any more."""
        async with self._turn:
            if not self.is_held:
                raise BadVersion(f"{self.path} is not held now ({self.state.value})")
            self._intended = value
            try:
                stored = await self._store.put(self.path, value, expected_version=self.version, ephemeral=True)
            except BadVersion:
                self._wake.set()
                raise
            self.value, self.version = value, stored.version

    async def release(self) -> None:
        """Give the path up: our record goes, and nothing is claimed again."""
        if self._ended:
            return
        self.end()
        self._become(ClaimState.RELEASED)
        await self._delete(self.version)

    def abandon(self) -> None:
        """Stop claiming at once; a record of ours that is still there goes when the store can be asked."""
        if not self._ended:
            self.end()
            if self._may_exist:
                self._on_left(self)

    async def run(self) -> None:
        """Claim, then watch over it, until released or, for a lock, until someone else holds it."""
        while not self._ended:
            self._wake.clear()
            wait_ms = RECHECK_MS
            try:
                async with self._turn:
                    await self._look()
            except StoreGivenUp:
                self.end()
            except MetadataError as error:
                if not error.retryable:
                    raise
                wait_ms = RETRY_MS
            if self.state is ClaimState.HELD_BY_OTHER and not self._patient:
                self.end()
            if self.state in (ClaimState.HELD, ClaimState.HELD_BY_OTHER):
                self._settled.set()
            if not self._ended:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_ms / 1000):
                        await self._wake.wait()

    # --- what the store says ------------------------------------------------------------------

    def _on_change(self, change: Change) -> None:
        if change.path == self.path:
            self._wake.set()

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._session_lost = True
            self._may_exist = False
            self.version = MUST_NOT_EXIST
            if self.state in (ClaimState.HELD, ClaimState.UNCERTAIN):
                self._become(ClaimState.LOST)
        elif event is SessionEvent.DISCONNECTED and self.state is ClaimState.HELD:
            self._become(ClaimState.UNCERTAIN)
        if event is not SessionEvent.DISCONNECTED:
            self._wake.set()

    # --- leaves -------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Read who holds the path, and claim it when nobody else does."""
        record = await self._store.get(self.path)
        if self._ended:
            return
        if record is not None and record.version == self.version and record.value == self.value:
            self._become(ClaimState.HELD)
        elif record is None or self.is_own(record.value):
            if record is None and self.state is ClaimState.HELD:
                self._become(ClaimState.LOST)
            await self._take(is_named=record is not None)
        else:
            self.version = MUST_NOT_EXIST
            self.holder = record.value
            self._become(ClaimState.HELD_BY_OTHER)

    def is_own(self, holder: bytes) -> bool:
        """Whether a record names us; where we did not write it now, by a put whose outcome was unknown, or before."""
        return holder in (self.value, self._intended)

    async def _take(self, *, is_named: bool) -> None:
        self._session_lost = False
        self._may_exist = True
        try:
            stored = await self._store.put(self.path, self.value, ephemeral=True, expected_version=None)
        except BadVersion:
            # Without a record that named us someone was faster. Either way: look again.
            if is_named:
                await self._delete_remains()
            self._wake.set()
            return
        epoch = await self._next_epoch()
        if self._ended:
            await self._delete(stored.version)
            return
        if self._session_lost:
            self._wake.set()
            return
        self.version, self.epoch, self.holder = stored.version, epoch, self.value
        self._become(ClaimState.HELD)

    async def _delete_remains(self) -> None:
        """A record that names us and belongs to a session of ours that is gone would go by itself, later.

        It is looked at once more: what a store says after it refused a write of ours is not older than that. What it
        said before may be, and somebody else's record, made since, may have the same version.
        """
        record = await self._store.get(self.path)
        if record is not None and self.is_own(record.value):
            with contextlib.suppress(BadVersion, NoRecord):
                await self._store.delete(self.path, expected_version=record.version)

    async def _delete(self, version: int) -> None:
        """What cannot be deleted now would name a holder that does not hold: others would be sent there for ever."""
        if version != MUST_NOT_EXIST:
            # A record of another holder has another version or none.
            with contextlib.suppress(MetadataError):
                await self._store.delete(self.path, expected_version=version)
                return
        if self._may_exist:
            self._on_left(self)

    async def _next_epoch(self) -> int:
        """Only the holder writes here, and a record's version never falls: a later holder has a higher number."""
        if self._epoch_path is None:
            return 0
        return (await self._store.put(self._epoch_path, self.value)).version + 1

    def _become(self, state: ClaimState) -> None:
        if state is self.state:
            return
        self.state = state
        if self._on_state is not None:
            self._on_state(self)

    def end(self) -> None:
        """Stop watching over it; the record stays as it is."""
        self._ended = True
        self._unwatch()
        self._unwatch_session()
        self._wake.set()
        self._settled.set()


class Coordination:
    """The claims of one process on one store; at most one per path."""

    def __init__(self, store: MetadataStore, tasks: Tasks) -> None:
        self._store = store
        self._tasks = tasks
        self._claims: dict[str, Claim] = {}

    async def lock(
        self,
        path: str,
        value: bytes,
        *,
        epoch_path: str | None = None,
        on_state: Callable[[Claim], None] | None = None,
    ) -> Claim:
        """Hold a path now, or LockHeld. The value must name this owner and no other.

        A lost session is LOST at once; the lock is then claimed again, and HELD_BY_OTHER ends it for good.
        """
        claim = self._start(path, value, patient=False, epoch_path=epoch_path, on_state=on_state)
        try:
            await claim.settled()
        except asyncio.CancelledError:
            await claim.release()
            raise
        if claim.state is ClaimState.HELD_BY_OTHER:
            raise LockHeld(f"{path} is held by {(claim.holder or b'').decode(errors='replace')[:200]}")
        if claim.state in (ClaimState.SEEKING, ClaimState.RELEASED):
            raise MetadataError(f"{path} was not locked: the claim ended before it was settled")
        return claim

    def candidate(
        self,
        path: str,
        value: bytes,
        *,
        epoch_path: str | None = None,
        on_state: Callable[[Claim], None] | None = None,
    ) -> Claim:
        """Stand for election: HELD means leading, HELD_BY_OTHER following `holder`. Ends with `release`."""
        return self._start(path, value, patient=True, epoch_path=epoch_path, on_state=on_state)

    async def close(self) -> None:
        """Release everything."""
        for claim in list(self._claims.values()):
            await claim.release()

    def _start(
        self,
        path: str,
        value: bytes,
        *,
        patient: bool,
        epoch_path: str | None,
        on_state: Callable[[Claim], None] | None,
    ) -> Claim:
        present = self._claims.get(path)
        if present is not None and not present.has_ended:
            raise LockHeld(f"{path} is claimed by this process already")
        claim = Claim(
            self._store,
            path,
            value,
            patient=patient,
            epoch_path=epoch_path,
            on_state=on_state,
            on_left=self._on_left,
        )
        self._tasks.start(self._watch_over(claim), f"claim {path}")
        self._claims[path] = claim
        return claim

    async def _watch_over(self, claim: Claim) -> None:
        try:
            await claim.run()
        finally:
            claim.end()
            if self._claims.get(claim.path) is claim:
                del self._claims[claim.path]

    def _on_left(self, claim: Claim) -> None:
        if not self._tasks.is_closed:
            self._tasks.start(self._remove_left(claim), f"remove what is left at {claim.path}")

    async def _remove_left(self, claim: Claim) -> None:
        """Until the store says that it is gone, or we claim it again."""
        while not self._is_claimed_anew(claim):
            try:
                record = await self._store.get(claim.path)
                if record is None or not claim.is_own(record.value) or self._is_claimed_anew(claim):
                    return
                await self._store.delete(claim.path, expected_version=record.version)
                return
            except (BadVersion, NoRecord):
                return
            except MetadataError:
                await asyncio.sleep(RETRY_MS / 1000)

    def _is_claimed_anew(self, former: Claim) -> bool:
        present = self._claims.get(former.path)
        return present is not None and present is not former and not present.has_ended
