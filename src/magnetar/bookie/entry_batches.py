# SPDX-License-Identifier: Apache-2.0
"""The loops over packed entries of many ledgers at once that adding spends its time in: looked at, and put away.

A packed entry begins with its ledger and its own id. The functions here are the plain ones; at the end the compiled
twins take their names, where there are any.
Decides.
"""

from struct import Struct
from typing import Final

from magnetar.bookie.ledger_state import LedgerState
from magnetar.wire import compiled
from magnetar.wire.bookkeeper.entry import METADATA_BYTES

ids_of: Final = Struct(">qq").unpack_from
"""Ledger and entry of a packed entry."""


def fine_ledgers(
    states: dict[int, LedgerState], master_key: bytes, entries: list[bytes], start: int, bytes_max: int
) -> list[int]:
    """The ledger of each entry from start on, up to the first entry that may not be taken as it comes."""
    found: list[int] = []
    for entry in entries[start:]:
        if not METADATA_BYTES <= len(entry) <= bytes_max:
            break
        ledger_id, entry_id = ids_of(entry)
        state = states.get(ledger_id)
        if entry_id < 0 or state is None or not state.open_to_adds or state.master_key != master_key:
            break
        found.append(ledger_id)
    return found


def put_entries(
    ledgers: dict[int, dict[int, bytes]], ledger_ids: list[int], entries: list[bytes], start: int
) -> tuple[int, int]:
    """Put as many entries, from start on, as ledgers are named into the table of each one's ledger.

    Returns how many more there are now, and how many more bytes: the newest entry under an id holds.
    """
    added = added_bytes = 0
    for ledger_id, entry in zip(ledger_ids, entries[start : start + len(ledger_ids)], strict=True):
        held = ledgers.get(ledger_id)
        if held is None:
            held = ledgers[ledger_id] = {}
        _, entry_id = ids_of(entry)
        old = held.get(entry_id)
        added += old is None
        added_bytes += len(entry) - (0 if old is None else len(old))
        held[entry_id] = entry
    return added, added_bytes


def are_consecutive(entries: list[bytes], ledger_id: int, first: int, bytes_max: int) -> bool:
    """Whether these are packed entries of that ledger, from that id on, and of allowed sizes."""
    return all(
        METADATA_BYTES <= len(entry) <= bytes_max and ids_of(entry) == (ledger_id, entry_id)
        for entry_id, entry in enumerate(entries, first)
    )


def entry_runs(entries: list[bytes], first: int, last: int) -> list[list[int]]:
    """The runs of consecutive entries of one ledger among these, by their numbers: ledger, first and last entry."""
    found: list[list[int]] = []
    newest: dict[int, list[int]] = {}
    for entry in entries[first : last + 1]:
        ledger_id, entry_id = ids_of(entry)
        run = newest.get(ledger_id)
        if run is not None and run[2] + 1 == entry_id:
            run[2] = entry_id
        else:
            newest[ledger_id] = run = [ledger_id, entry_id, entry_id]
            found.append(run)
    return found


PLAIN: Final = (fine_ledgers, put_entries, entry_runs, are_consecutive)

if (_twins := compiled.load()) is not None:
    fine_ledgers = _twins.fine_ledgers
    put_entries = _twins.put_entries
    entry_runs = _twins.entry_runs
    are_consecutive = _twins.are_consecutive
