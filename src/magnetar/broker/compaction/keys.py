# SPDX-License-Identifier: Apache-2.0
"""Which messages of a topic compaction keeps: for every key the last one, none where the last one is empty.

Two passes over the same entries in the same order: `note` in the first, `kept` in the second. A message in chunks is
one message: all its parts are kept or none, and the parts of one whose last part has not come yet are kept. The last
one is the one published last or, by event time, the one of the latest event time; of equal times the one published
last.

Invariant: the table holds one place per live key, however many messages there are; its size is bounded.
Decides.
"""

from typing import Final, NamedTuple

from magnetar.broker.compaction.messages import EntryMessages
from magnetar.errors import Refused
from magnetar.ids import Position

# What one key costs beside its own characters, about.
_KEY_BYTES: Final = 200


class Place(NamedTuple):
    position: Position
    batch_index: int


class Kept(NamedTuple):
    """What stays of an entry: all of it, or the messages at these indexes of a batch; nothing when both are false."""

    is_whole: bool
    indexes: tuple[int, ...] = ()


_WHOLE: Final = Kept(True)
_NOTHING: Final = Kept(False)


class TooManyKeys(Refused):
    """The keys of a topic do not fit into the memory that compaction may use."""


class LatestKeys:
    __slots__ = ("_bytes", "_bytes_max", "_chunk_keys", "_keeps_unkeyed", "_latest", "_open_chunks", "_times_ms")

    def __init__(self, *, bytes_max: int, keeps_unkeyed: bool, by_event_time: bool = False) -> None:
        # By event time: the latest time of each key, of those whose last message is empty, too.
        self._times_ms: dict[str, int] | None = {} if by_event_time else None
        self._latest: dict[str, Place] = {}
        # The uuid of a chunked message that is the latest of its key, by the key.
        self._chunk_keys: dict[str, str] = {}
        # Chunked messages of which the last part has not been seen.
        self._open_chunks: dict[str, None] = {}
        self._bytes = 0
        self._bytes_max = bytes_max
        self._keeps_unkeyed = keeps_unkeyed

    def __len__(self) -> int:
        return len(self._latest) + len(self._chunk_keys)

    def note(self, position: Position, entry: EntryMessages) -> None:
        """First pass. TooManyKeys when there are more than fit."""
        if entry.chunk is not None:
            self._note_chunk(entry, *entry.chunk)
            return
        for index, key, is_empty, event_time_ms in entry.messages:
            if key is None or self._is_earlier(key, event_time_ms):
                continue
            self._forget(key)
            if not is_empty:
                self._latest[key] = Place(position, index)
                self._take(key)

    def kept(self, position: Position, entry: EntryMessages) -> Kept:
        """Second pass."""
        if entry.is_marker:
            return _NOTHING
        if entry.is_opaque:
            return _WHOLE
        if entry.chunk is not None:
            uuid, _ = entry.chunk
            key = entry.messages[0].key
            is_kept = uuid in self._open_chunks or (self._keeps_unkeyed if key is None else self._is_chunk(key, uuid))
            return _WHOLE if is_kept else _NOTHING
        indexes = tuple(
            index
            for index, key, *_ in entry.messages
            if (self._keeps_unkeyed if key is None else self._latest.get(key) == (position, index))
        )
        return _WHOLE if len(indexes) == len(entry.messages) else Kept(False, indexes)

    def _note_chunk(self, entry: EntryMessages, uuid: str, is_last: bool) -> None:
        if not is_last:
            if uuid not in self._open_chunks:
                self._open_chunks[uuid] = None
                self._take(uuid)
            return
        if uuid in self._open_chunks:
            del self._open_chunks[uuid]
            self._bytes -= len(uuid) + _KEY_BYTES
        key = entry.messages[0].key
        if key is not None and not self._is_earlier(key, entry.messages[0].event_time_ms):
            self._forget(key)
            self._chunk_keys[key] = uuid
            self._take(key)

    def _is_earlier(self, key: str, event_time_ms: int) -> bool:
        """Whether a message of the key was seen that happened later. Remembers the time when not."""
        times_ms = self._times_ms
        if times_ms is None:
            return False
        known = times_ms.get(key)
        if known is not None and event_time_ms < known:
            return True
        if known is None:
            self._take(key)
        times_ms[key] = event_time_ms
        return False

    def _is_chunk(self, key: str, uuid: str) -> bool:
        return self._chunk_keys.get(key) == uuid

    def _forget(self, key: str) -> None:
        if self._latest.pop(key, None) is not None or self._chunk_keys.pop(key, None) is not None:
            self._bytes -= len(key) + _KEY_BYTES

    def _take(self, key: str) -> None:
        self._bytes += len(key) + _KEY_BYTES
        if self._bytes > self._bytes_max:
            raise TooManyKeys(
                f"Compaction stops at {len(self)} keys: they take more than the {self._bytes_max} bytes allowed;"
                " raise broker.compaction_memory_bytes_max"
            )
