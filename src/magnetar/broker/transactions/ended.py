# SPDX-License-Identifier: Apache-2.0
"""The transactions that ended lately at one participant: what comes late for one of them is refused.

Bounded: what was forgotten is refused by its coordinator, which is asked about everything that is not known here.
Decides.
"""

from typing import Final

from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import BadTransactionStatus

_KEPT_MAX: Final = 10_000


class EndedTransactions:
    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[TxnId, None] = {}

    def note(self, txn_id: TxnId) -> None:
        self._ids.pop(txn_id, None)
        self._ids[txn_id] = None
        if len(self._ids) > _KEPT_MAX:
            del self._ids[next(iter(self._ids))]

    def check(self, txn_id: TxnId) -> None:
        """BadTransactionStatus for one that ended."""
        if txn_id in self._ids:
            raise BadTransactionStatus(f"Transaction {txn_id} has ended already")
