# SPDX-License-Identifier: Apache-2.0
"""The acknowledgements of one subscription that wait for the end of their transaction.

Owns who claims what: an entry, or messages of its batch, or everything up to a place, each by one transaction at a
time. What is claimed is neither acknowledged nor sent to anyone until the end decides. Told the same by live requests
and by the replay of the log. Never acknowledges, never logs.

Invariant: no message is claimed by two transactions.
Decides.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import TransactionConflict
from magnetar.ids import Position
from magnetar.managed_ledger.cursor_state import CursorState, bits_of, words_of

# All messages of an entry.
WHOLE: Final = -1


class Claim(NamedTuple):
    """An entry, and which of its messages as bits; WHOLE for all. An ack set has the bits that are left."""

    position: Position
    messages: int = WHOLE
    ack_set: tuple[int, ...] = ()
    batch_size: int = 0


def claim_of(position: Position, ack_set: Iterable[int], batch_size: int) -> Claim:
    """Of an acknowledgement: with an ack set, the messages of the batch whose bits are clear."""
    words = tuple(ack_set)
    left = bits_of(words)
    if not left:
        return Claim(position)
    size = max(batch_size, 64 * len(words) if not batch_size else 0)
    return Claim(position, ~left & (1 << size) - 1, words, size)


class PendingAcks:
    __slots__ = ("_claimed", "_cumulative", "_transactions")

    def __init__(self) -> None:
        # By entry: which messages of it are claimed by whom.
        self._claimed: dict[Position, dict[TxnId, Claim]] = {}
        # Everything up to a place, for the one transaction that claims so.
        self._cumulative: tuple[TxnId, Claim] | None = None
        # By transaction: its entries.
        self._transactions: dict[TxnId, dict[Position, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._transactions) or self._cumulative is not None

    def __contains__(self, txn_id: TxnId) -> bool:
        return txn_id in self._transactions

    @property
    def transactions(self) -> list[TxnId]:
        return list(self._transactions)

    # --- claims -----------------------------------------------------------------------------------

    def check(self, txn_id: TxnId, claims: Iterable[Claim], state: CursorState) -> None:
        """TransactionConflict when another transaction has a part of it, or it is acknowledged."""
        for claim in claims:
            position = claim.position
            if state.is_acked(position):
                raise TransactionConflict(f"Message {_id(position)} is acknowledged already")
            left = state.batch_bits(position)
            if left and claim.messages != WHOLE and claim.messages & ~left:
                raise TransactionConflict(f"A message of batch {_id(position)} is acknowledged already")
            others = {other: each for other, each in self._claimed.get(position, {}).items() if other != txn_id}
            for other, each in others.items():
                if each.messages & claim.messages:
                    raise TransactionConflict(f"Message {_id(position)} is claimed by transaction {other}")
            cumulative = self._cumulative
            if cumulative is not None and cumulative[0] != txn_id and _covers(cumulative[1], position, claim.messages):
                raise TransactionConflict(f"Message {_id(position)} is claimed by transaction {cumulative[0]}")

    def check_cumulative(self, txn_id: TxnId, claim: Claim, state: CursorState) -> None:
        if claim.position <= state.mark_delete:
            raise TransactionConflict(f"Everything up to {_id(claim.position)} is acknowledged already")
        if self._cumulative is not None and self._cumulative[0] != txn_id:
            raise TransactionConflict(f"Transaction {self._cumulative[0]} acknowledges cumulatively")
        for position, claims in self._claimed.items():
            for other, each in claims.items():
                if other != txn_id and _covers(claim, position, each.messages):
                    raise TransactionConflict(f"Message {_id(position)} is claimed by transaction {other}")

    def add(self, txn_id: TxnId, claims: Iterable[Claim]) -> None:
        entries = self._transactions.setdefault(txn_id, {})
        for claim in claims:
            of_entry = self._claimed.setdefault(claim.position, {})
            present = of_entry.get(txn_id)
            if present is not None:
                claim = _merged(present, claim)
            of_entry[txn_id] = claim
            entries[claim.position] = None

    def add_cumulative(self, txn_id: TxnId, claim: Claim) -> None:
        self._transactions.setdefault(txn_id, {})
        if self._cumulative is None or self._cumulative[1].position <= claim.position:
            self._cumulative = (txn_id, claim)

    def remove(self, txn_id: TxnId) -> tuple[list[Claim], Claim | None]:
        """A transaction ended: what it claimed, one by one and cumulatively."""
        claims: list[Claim] = []
        for position in self._transactions.pop(txn_id, {}):
            of_entry = self._claimed[position]
            claims.append(of_entry.pop(txn_id))
            if not of_entry:
                del self._claimed[position]
        cumulative = None
        if self._cumulative is not None and self._cumulative[0] == txn_id:
            cumulative, self._cumulative = self._cumulative[1], None
        return claims, cumulative

    # --- questions --------------------------------------------------------------------------------

    def claims(self) -> Iterator[tuple[TxnId, list[Claim], Claim | None]]:
        for txn_id, positions in self._transactions.items():
            cumulative = self._cumulative[1] if self._cumulative and self._cumulative[0] == txn_id else None
            yield txn_id, [self._claimed[position][txn_id] for position in positions], cumulative

    def claimed(self, position: Position) -> int:
        """Which messages of an entry are claimed, as bits; WHOLE: all, 0: none."""
        claimed = 0
        for claim in self._claimed.get(position, {}).values():
            claimed |= claim.messages
        if self._cumulative is not None:
            claim = self._cumulative[1]
            if position < claim.position:
                return WHOLE
            if position == claim.position:
                claimed |= claim.messages
        return claimed

    def left_of(self, position: Position, ack_set: Sequence[int], messages: int) -> tuple[Sequence[int], int] | None:
        """The ack set and the messages of an entry without what is claimed; None when nothing is left."""
        claimed = self.claimed(position)
        if not claimed:
            return ack_set, messages
        left = (bits_of(ack_set) if ack_set else (1 << messages) - 1) & ~claimed
        return (words_of(left), left.bit_count()) if left else None

    def holder(self, position: Position) -> TxnId | None:
        """Who claims a part of an entry, for people."""
        return next(iter(self._claimed.get(position, {})), None)


def _covers(cumulative: Claim, position: Position, messages: int) -> bool:
    return position < cumulative.position or (position == cumulative.position and bool(cumulative.messages & messages))


def _merged(one: Claim, other: Claim) -> Claim:
    """Both of one transaction on one entry."""
    if one.messages == WHOLE or other.messages == WHOLE:
        return Claim(one.position)
    size = max(one.batch_size, other.batch_size)
    messages = one.messages | other.messages
    left = ~messages & (1 << size) - 1
    words = tuple(left >> shift & 2**64 - 1 for shift in range(0, size, 64)) if left else ()
    return Claim(one.position, messages, words, size) if left else Claim(one.position)


def _id(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"
