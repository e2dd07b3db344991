# SPDX-License-Identifier: Apache-2.0
"""Ledgers that say they belong to a managed ledger, while neither its record nor its cursors know them.

Our own owners leave none, whatever call they die at; other brokers do, and so does an owner that was replaced and
dies while it still makes a ledger. For checks by an operator: it reads every ledger's record. A ledger is an orphan
only when two looks agree (R13): before and after its managed ledger's records were read it was there, and they do not
name it.
Carries.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from magnetar.errors import NoSuchLedger
from magnetar.ledger.ledgers import Ledgers
from magnetar.managed_ledger.catalog import Catalog
from magnetar.managed_ledger.cursor_record import NO_LEDGER, CursorRecord
from magnetar.managed_ledger.ledger_record import LedgerRecord
from magnetar.metadata.store import MetadataStore

_COMPONENT = "component"
_OWNER = "pulsar/managed-ledger"
_CURSOR = "pulsar/cursor"


class Orphan(NamedTuple):
    ledger_id: int
    # The managed ledger that it was made for, and the cursor if it is a cursor's.
    managed_ledger: str
    cursor: str


async def orphans(store: MetadataStore, ledgers: Ledgers) -> AsyncIterator[Orphan]:
    """Every orphan there is, by rising id. Nothing is deleted here."""
    known: dict[str, frozenset[int]] = {}
    async for ledger_id in ledgers.catalog.ledger_ids():
        claim = await _claim(ledgers, ledger_id)
        if claim is None:
            continue
        name = claim.managed_ledger
        if name not in known or ledger_id not in known[name]:
            # A ledger made since the last look is named by now: look again before anything is said.
            known[name] = await _named_ledgers(store, name)
        if ledger_id not in known[name] and await ledgers.exists(ledger_id):
            yield claim


async def _claim(ledgers: Ledgers, ledger_id: int) -> Orphan | None:
    try:
        custom = (await ledgers.catalog.load(ledger_id)).record.custom or {}
    except NoSuchLedger:
        return None
    if custom.get(_COMPONENT) != b"managed-ledger" or _OWNER not in custom:
        return None
    return Orphan(ledger_id, custom[_OWNER].decode(), custom.get(_CURSOR, b"").decode())


async def _named_ledgers(store: MetadataStore, name: str) -> frozenset[int]:
    catalog = Catalog(store, name)
    found = await catalog.record.read()
    if found is None:
        return frozenset()
    record = LedgerRecord(found.value)
    named = {span.ledger_id for span in record.spans()} | {*record.deleting}
    if record.reserved is not None:
        named.add(record.reserved)
    for cursor_name in await catalog.cursor_names():
        cursor = await catalog.cursor(cursor_name).read()
        if cursor is None:
            continue
        state = CursorRecord.decode(cursor.value)
        named |= {state.ledger_id, *state.deleting, NO_LEDGER if state.reserved is None else state.reserved}
    return frozenset(named)
