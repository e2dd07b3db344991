# SPDX-License-Identifier: Apache-2.0
"""MetadataStore: few shared facts, with versions, watches and leases.

Paths look like ZooKeeper's: absolute, '/'-separated, no trailing slash, no empty part. Parents of a new record are
made as empty persistent records. Every implementation passes tests/contracts/test_metadata_store.py.
Carries.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

MUST_NOT_EXIST: Final = -1
# How long the end of a session waits to be heard; a server that does not hear of it ends the session by its timeout.
GOODBYE_S: Final = 5.0


class Record(NamedTuple):
    value: bytes
    version: int
    ephemeral: bool
    created_ms: int
    modified_ms: int


class Stored(NamedTuple):
    path: str
    version: int


class ChangeKind(Enum):
    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    CHILDREN_CHANGED = "children-changed"


class Change(NamedTuple):
    kind: ChangeKind
    path: str


class SessionEvent(Enum):
    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"
    LOST = "lost"
    REESTABLISHED = "re-established"


class MetadataStore(ABC):
    @abstractmethod
    async def get(self, path: str) -> Record | None: ...

    @abstractmethod
    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        """Write a record. Version: None writes in any case, MUST_NOT_EXIST creates, n replaces version n (BadVersion).

        A new record has version 0; each write adds one. Sequential appends a ten-digit rising number to the last name
        (the returned path carries it); such a record is always new.

        Ephemeral records end with the session and take no children (BadPath). After an ephemeral put the record is this
        session's own: on a persistent record, or one of another session, it raises BadVersion. A plain put to an
        ephemeral record changes its value and leaves it ephemeral. ValueTooLarge names the limit.
        """

    @abstractmethod
    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """NoRecord when absent, BadVersion when changed, HasChildren when it has children."""

    @abstractmethod
    async def children(self, path: str) -> list[str]:
        """Names directly below path, sorted; empty when there is no such record.

        Never older than the call, also where a single record may be read from a server that is behind: who is elected
        and what is deleted goes by lists. What is read after it is not older either.
        """

    @abstractmethod
    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Tell of changes at prefix or below it, on the loop, after they are visible; returns the call that ends it.

        Set it, then read: every change that the read did not show is told. Without a read in between, what another
        session changes at the same time may be missed.
        A change may be told late, twice, or merged with the next; it is never lost for good while the session lives.
        What happened while disconnected may be told as one change of the prefix itself, MODIFIED and CHILDREN_CHANGED.
        The watch outlives a lost session: after REESTABLISHED read again, what happened in between is not told.
        """

    @abstractmethod
    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """Tell of the session's fate, on the loop, in order with the changes; returns the call that ends it.

        DISCONNECTED: operations fail or wait, the session may live on. RECONNECTED: it did. LOST: it ended, operations
        raise SessionLost until REESTABLISHED: a new session, without the old one's ephemeral records.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the session: its ephemeral records go."""

    async def exists(self, path: str) -> bool:
        return await self.get(path) is not None

    async def delete_recursive(self, path: str) -> None:
        for name in await self.children(path):
            await self.delete_recursive(f"{path}/{name}" if path != "/" else f"/{name}")
        if path != "/" and await self.exists(path):
            await self.delete(path)
