# SPDX-License-Identifier: Apache-2.0
"""What a bookie does when it finds that it has lost something: rebuild what can be derived, doubt the rest.

Owns the rule that a loss never becomes a claim of absence. An index that is gone or older than the last mark is rebuilt
from the entry logs; every ledger that may be concerned goes into limbo, fenced. Until somebody who knows says which
ledgers exist, a ledger that is not here may still have been. Never deletes, and never repairs from other bookies.
Carries.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from magnetar.bookie.checkpoint import UNSURE_NOTE
from magnetar.bookie.entry_log_format import LoggedEntry
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.ledger_index import ROW, location_of
from magnetar.bookie.ledger_state import LedgerState, decode_state
from magnetar.bookie.ledger_table import LedgerTable

_ROWS_BYTES: Final = 10_000 * ROW.size

_log = logging.getLogger(__name__)


async def rebuild_index(directory: LedgerDirectory) -> int:
    """Fill an emptied index from the entry logs; returns the entries found. Ledgers get no state here.

    Logs are read in the order of their ids, so that the newest copy of an entry holds.
    """
    await directory.index.clear()
    entries = 0
    ledger_ids: dict[int, None] = {}
    for log_id in directory.logs.log_ids():
        rows = bytearray()
        async for found in directory.logs.scan(log_id):
            if not isinstance(found, LoggedEntry):
                _log.error("entry log %x in %s is damaged at %d", log_id, directory.path, found.start)
                continue
            location = location_of(log_id, found.offset)
            rows += ROW.pack(found.ledger_id, found.entry_id, location, len(found.entry))
            ledger_ids[found.ledger_id] = None
            entries += 1
            if len(rows) >= _ROWS_BYTES:
                await directory.index.put_places(bytes(rows))
                rows.clear()
        if rows:
            await directory.index.put_places(bytes(rows))
    # A key is not in the logs: a ledger in limbo takes the first one it is shown.
    states = {ledger_id: _lost_state(ledger_id).encode() for ledger_id in ledger_ids}
    await directory.index.put_ledgers(states)
    await directory.index.put_note(UNSURE_NOTE, b"1")
    await directory.sync()
    return entries


async def doubt_everything(table: LedgerTable, directories: Sequence[LedgerDirectory]) -> int:
    """Put every ledger known here into limbo; returns how many. Durable with the next checkpoint."""
    table.doubt()
    for directory in directories:
        for ledger_id in await directory.index.ledger_ids():
            data = None if ledger_id in table.states else await directory.index.ledger(ledger_id)
            if data is not None and not table.is_deleted(ledger_id):
                table.keep(decode_state(ledger_id, data))
    for state in table.states.values():
        state.enter_limbo()
        table.note_change(state)
    return len(table.states)


async def settle(table: LedgerTable, directories: Sequence[LedgerDirectory], existing: Iterable[int]) -> int:
    """All ledgers that exist are named: those not known here go into limbo, any other is new from now on."""
    count = 0
    for ledger_id in existing:
        if ledger_id in table.states or table.is_deleted(ledger_id):
            continue
        if await directories[ledger_id % len(directories)].index.ledger(ledger_id) is None:
            table.begin(ledger_id, b"").enter_limbo()
            count += 1
    table.stop_doubting()
    return count


def _lost_state(ledger_id: int) -> LedgerState:
    state = LedgerState(ledger_id, b"")
    state.enter_limbo()
    return state
