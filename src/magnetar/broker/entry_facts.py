# SPDX-License-Identifier: Apache-2.0
"""What dispatch must know of a stored entry, parsed once however many subscriptions read it.

Owns the bounded memory of those facts for all topics of a broker: ledger ids are unique, so one table serves them all.
Holds numbers, never the entry's bytes, so that nothing is kept alive by it.
Decides.
"""

import logging
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Final

from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import BadFrame
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry
from magnetar.wire import broker_entry, compiled, message
from magnetar.wire.key_hash import murmur3_32
from magnetar.wire.message_key import sticky_key
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata

HASH_SLOTS: Final = 65_536
# Of keys and ids, which producers choose, no more is kept than this.
NAME_BYTES_MAX: Final = 512

_log = logging.getLogger(__name__)
_twins = compiled.load()

# Enough for what a broker puts in front and for usual metadata.
_FRONT_BYTES: Final = 256
_FIXED_BYTES: Final = message.CHECKSUM_BYTES + message.SIZE_BYTES


class EntryFacts:
    """Facts of one entry, to read only: entries with the same facts share them."""

    __slots__ = ("chunk", "deliver_at_ms", "is_marker", "is_plain", "key_hash", "message_start", "messages", "txn_id")

    def __init__(self, message_start: int, messages: int) -> None:
        # Where the message begins, behind what the broker put in front of it.
        self.message_start = message_start
        self.messages = messages
        self.deliver_at_ms = 0
        # Written by brokers for brokers; no consumer sees it.
        self.is_marker = False
        self.key_hash = -1
        # Of a part of a chunked message: its uuid, or a digest of a long one, and whether this is the last part.
        self.chunk: tuple[str, bool] | None = None
        # The transaction that it was sent in.
        self.txn_id: TxnId | None = None
        # Whether any consumer may have the entry at once, alone.
        self.is_plain = True


class FactsTable:
    __slots__ = ("_entries_max", "_facts", "parsed")

    def __init__(self, entries_max: int = 32_768) -> None:
        self._entries_max = entries_max
        self._facts: dict[int, EntryFacts] = {}
        self.parsed = 0

    def of(self, entry: Entry) -> EntryFacts:
        key = entry.ledger_id << 32 | entry.entry_id
        facts = self._facts.get(key)
        if facts is None:
            facts = parse_facts(entry)
            self.parsed += 1
            self._make_room(1)
            self._facts[key] = facts
        return facts

    def of_all(self, entries: Sequence[Entry], *, keyed: bool) -> list[EntryFacts]:
        """`of` or `keyed` for entries that were read together."""
        each = self.keyed if keyed else self.of
        if _twins is None or (entries[-1].ledger_id << 32 | entries[-1].entry_id) in self._facts:
            # The last one was looked at before, and so most likely were the others.
            return [each(entry) for entry in entries]
        self._make_room(len(entries))
        table = self._facts
        found = []
        for entry, front in zip(entries, _twins.read_fronts(entries, keyed), strict=True):
            if front is None:
                found.append(each(entry))
                continue
            start, messages, key = front
            facts = shared_facts(start, messages, -1 if key is None else slot_of(key))
            table[entry.ledger_id << 32 | entry.entry_id] = facts
            found.append(facts)
        self.parsed += len(entries)
        return found

    def known(self, position: Position) -> EntryFacts | None:
        """The facts of an entry that was looked at lately."""
        return self._facts.get(position.ledger_id << 32 | position.entry_id)

    def keyed(self, entry: Entry) -> EntryFacts:
        """The facts with the slot of the entry's key, from 0 to HASH_SLOTS - 1."""
        facts = self.of(entry)
        if facts.key_hash < 0:
            facts = with_key(entry, facts)
            self._facts[entry.ledger_id << 32 | entry.entry_id] = facts
        return facts

    def _make_room(self, count: int) -> None:
        if len(self._facts) + count > self._entries_max:
            for oldest in list(islice(self._facts, max(count, self._entries_max // 8))):
                del self._facts[oldest]

    def __len__(self) -> int:
        return len(self._facts)


def slot_of(key: bytes) -> int:
    """Where a key lies on the circle of HASH_SLOTS that Key_Shared divides among consumers."""
    return _remembered_slot(key) if len(key) <= NAME_BYTES_MAX else murmur3_32(key) % HASH_SLOTS


@lru_cache(maxsize=65_536)
def _remembered_slot(key: bytes) -> int:
    return murmur3_32(key) % HASH_SLOTS


@lru_cache(maxsize=65_536)
def shared_facts(message_start: int, messages: int, key_hash: int) -> EntryFacts:
    """The facts of entries that are due at once and of which nothing else is to be known."""
    facts = EntryFacts(message_start, messages)
    facts.key_hash = key_hash
    return facts


# Facts of a single message that is due at once, by where it begins.
_PLAIN: Final = tuple(EntryFacts(start, 1) for start in range(_FRONT_BYTES))


def parse_facts(entry: Entry) -> EntryFacts:
    """An entry that cannot be parsed is delivered as one message as it is: its consumer sees the damage, and can
    acknowledge it.
    """
    front = bytes(entry.body[:_FRONT_BYTES])
    start = 0
    try:
        if front[:2] == b"\x0e\x02":
            start = broker_entry.HEADER_BYTES + int.from_bytes(front[2:6], "big")
            if start >= len(front):
                start = broker_entry.message_start(entry.body)
        if front[start : start + 2] == b"\x0e\x01":
            begin = start + _FIXED_BYTES
            until = begin + int.from_bytes(front[begin - 4 : begin], "big")
            metadata = front[begin:until] if until <= len(front) else bytes(entry.body[begin:until])
            # Most messages have none of the fields that matter here, and then none of their tags.
            if b"\x58" not in metadata and (b"\x01" not in metadata or not _has_telling_tag(metadata)):
                return _PLAIN[start] if start < _FRONT_BYTES else EntryFacts(start, 1)
        return _facts_of(message.read_metadata(entry.body, start), start)
    except BadFrame as error:
        _log.warning("entry %d:%d cannot be parsed: %s", entry.ledger_id, entry.entry_id, error)
        return EntryFacts(start if start <= len(entry.body) else 0, 1)


def with_key(entry: Entry, shared: EntryFacts) -> EntryFacts:
    """The same facts for this entry alone, with the slot of its key."""
    facts = EntryFacts(shared.message_start, shared.messages)
    facts.deliver_at_ms, facts.is_marker, facts.chunk = shared.deliver_at_ms, shared.is_marker, shared.chunk
    facts.txn_id, facts.is_plain = shared.txn_id, shared.is_plain
    try:
        facts.key_hash = slot_of(sticky_key(message.read_metadata(entry.body, facts.message_start)))
    except BadFrame:
        facts.key_hash = 0
    return facts


def _has_telling_tag(metadata: bytes) -> bool:
    """Whether deliver_at_time, marker_type, txnid_least_bits or num_chunks_from_msg may be there; the tag of
    num_messages_in_batch is the single byte 0x58.
    """
    return b"\x98\x01" in metadata or b"\xa0\x01" in metadata or b"\xb0\x01" in metadata or b"\xd8\x01" in metadata


def _facts_of(metadata: MessageMetadata, start: int) -> EntryFacts:
    facts = EntryFacts(start, message.messages_in(metadata))
    facts.deliver_at_ms = metadata.deliver_at_time
    if metadata.HasField("marker_type"):
        facts.is_marker = True
    if metadata.HasField("txnid_least_bits") and metadata.HasField("txnid_most_bits"):
        facts.txn_id = TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)
    chunks = metadata.num_chunks_from_msg
    if chunks > 1:
        facts.chunk = (_short(metadata.uuid), metadata.chunk_id == chunks - 1)
    facts.is_plain = not (facts.deliver_at_ms or facts.is_marker) and facts.chunk is None and facts.txn_id is None
    return facts


def _short(uuid: str) -> str:
    return uuid if len(uuid) <= NAME_BYTES_MAX else sha256(uuid.encode()).hexdigest()
