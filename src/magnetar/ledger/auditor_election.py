# SPDX-License-Identifier: Apache-2.0
"""One auditor for the cluster: BookKeeper's election, by ephemeral sequential votes of which the lowest wins.

Owns this candidate's vote. Whoever is elected may for a moment believe so beside another (a session that dies slowly):
what an auditor writes is merged or guarded by version, so two do no harm.
Carries.
"""

import asyncio
import contextlib
import logging
from typing import Final

from google.protobuf import text_format

from magnetar.errors import DamagedRecord, MetadataError
from magnetar.ledger.paths import AUDITOR_ELECTION
from magnetar.metadata.store import Change, MetadataStore, SessionEvent
from magnetar.wire.proto.ledger_formats_pb2 import AuditorVoteFormat

_VOTE: Final = "V_"
RECHECK_MS: Final = 10_000

_log = logging.getLogger(__name__)


class AuditorElection:
    __slots__ = ("_store", "_unwatch", "_value", "_vote", "_wake", "is_elected")

    def __init__(self, store: MetadataStore, owner: str) -> None:
        self.is_elected = False
        self._store = store
        # Names us and nobody else.
        self._value = text_format.MessageToString(AuditorVoteFormat(bookieId=owner)).encode()
        self._vote: str | None = None
        self._wake = asyncio.Event()
        self._unwatch = (
            store.watch(AUDITOR_ELECTION, self._on_change),
            store.watch_session(self._on_session),
        )

    async def until_elected(self) -> None:
        while not await self.look():
            await self._changed()

    async def look(self) -> bool:
        """Vote if need be, and say whether the vote is the lowest."""
        try:
            votes = await votes_of(self._store)
            if self._vote is None or self._vote not in votes:
                self._vote = await self._own_vote(votes) or await self._new_vote()
                votes = await votes_of(self._store)
            self.is_elected = votes[:1] == [self._vote]
        except MetadataError as error:
            _log.warning("the auditor's election cannot be read: %s", error)
            self.is_elected = False
        return self.is_elected

    async def _own_vote(self, votes: list[str]) -> str | None:
        """A vote that is there although the list lacks it, or whose answer was lost, so that nobody here knows of it.

        A second one beside it would be of no use: the first stays as long as the session, and as long as it is the
        lowest nobody is elected.
        """
        for vote in dict.fromkeys((*filter(None, (self._vote,)), *votes)):
            record = await self._store.get(f"{AUDITOR_ELECTION}/{vote}")
            if record is not None and record.value == self._value:
                return vote
        return None

    async def _new_vote(self) -> str:
        path = f"{AUDITOR_ELECTION}/{_VOTE}"
        stored = await self._store.put(path, self._value, ephemeral=True, sequential=True)
        return stored.path.rpartition("/")[2]

    async def withdraw(self) -> None:
        for end in self._unwatch:
            end()
        self.is_elected = False
        if self._vote is not None:
            with contextlib.suppress(MetadataError):
                await self._store.delete(f"{AUDITOR_ELECTION}/{self._vote}")
            self._vote = None

    def _on_change(self, change: Change) -> None:
        self._wake.set()

    def _on_session(self, event: SessionEvent) -> None:
        if event is not SessionEvent.RECONNECTED:
            self.is_elected = False
        self._wake.set()

    async def _changed(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECHECK_MS / 1000):
                await self._wake.wait()
        self._wake.clear()


async def votes_of(store: MetadataStore) -> list[str]:
    """The names of the votes, lowest first."""
    names = [name for name in await store.children(AUDITOR_ELECTION) if name.startswith(_VOTE)]
    return sorted(names, key=lambda name: int(name[len(_VOTE) :]))


async def current_auditor(store: MetadataStore) -> str | None:
    """Who audits now, as `whoisauditor` prints it; None when nobody does."""
    for vote in await votes_of(store):
        record = await store.get(f"{AUDITOR_ELECTION}/{vote}")
        if record is not None:
            return decode_vote(record.value, vote)
    return None


def decode_vote(value: bytes, vote: str) -> str:
    """The bookie that a vote is for. Raises DamagedRecord."""
    try:
        return text_format.Parse(value.decode(), AuditorVoteFormat()).bookieId
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise DamagedRecord(f"The vote {vote} for the auditor cannot be read: {error}") from error
