# SPDX-License-Identifier: Apache-2.0
"""Taking a managed ledger over: fence its last ledgers, find where they end, put that on record, and only then serve.

The guarded write of the record is the moment of taking over: from then on nothing that an earlier owner does can
change the list, and recovery has made sure that it cannot add entries either (R8). Two owners that open at once meet
in that write; the one that loses begins again and finds the other's ledgers.
Carries.
"""

import logging
from collections.abc import Mapping

from magnetar.errors import BadVersion, NoSuchLedger, PersistenceFailed, TopicNotFound
from magnetar.managed_ledger.cursor_store import CursorStore
from magnetar.managed_ledger.ledger_list import LedgerList, LedgerSpan
from magnetar.managed_ledger.ledger_record import LedgerRecord
from magnetar.managed_ledger.log_record import LogRecord
from magnetar.managed_ledger.parts import LogParts

# An earlier owner may have left more than the last ledger open, if it was not one of ours.
_FENCED_LEDGERS = 2

_log = logging.getLogger(__name__)


async def take_over(log: LogParts, *, create: bool, properties: Mapping[str, str]) -> LogRecord:
    """Become the owner. Fills the log's ledger list; it may be empty, and its last ledger is never open.

    TopicNotFound when there is no record and none may be made.
    """
    for _ in range(log.settings.open_attempts_max):
        present = await _present_record(log, create=create, properties=properties)
        spans = await _ended_spans(log, present)
        # A terminated log keeps its last ledger even if it is empty: that is where it ends.
        kept = [span for span in spans if span.entries] or (spans[-1:] if present.terminated else [])
        kept_ids = frozenset(span.ledger_id for span in kept)
        empty = [span.ledger_id for span in spans if span.ledger_id not in kept_ids]
        following = present.with_reserved(None).with_list(kept, deleting=[*_left_over(present), *empty])
        try:
            await log.catalog.record.write(following.encode())
        except BadVersion:
            _log.info("%s: another owner wrote the record meanwhile; looking again", log.name)
            continue
        log.ledgers = LedgerList(kept)
        return LogRecord(log.catalog.record, following)
    raise PersistenceFailed(f"{log.name} is being taken over by another owner")


async def delete_log(log: LogParts, record: LogRecord) -> None:
    """Delete a log: the intent is on record first, so that whoever looks next finishes what a crash leaves."""
    async with record.turn:
        doomed = [*_left_over(record.present), *(span.ledger_id for span in log.ledgers)]
        await record.write(record.present.with_list((), deleting=doomed, is_deleted=True))
    await finish_log_deletion(log, record)


async def finish_log_deletion(log: LogParts, record: LogRecord) -> None:
    """Delete everything of a log whose record says that it is going away: cursors, ledgers, and the record last.

    PersistenceFailed when another owner has finished it meanwhile: cursors of these names are no longer ours.
    """
    for name in await log.catalog.cursor_names():
        await _delete_stored_cursor(log, name, record)
    for ledger_id in record.present.deleting:
        try:
            await log.delete_ledger(ledger_id)
        except NoSuchLedger:
            continue
    async with record.turn:
        await record.delete()


async def _delete_stored_cursor(log: LogParts, name: str, record: LogRecord) -> None:
    """Delete a cursor that no one has open, with its ledgers; without reading its state.

    A cursor that was read while the log's record still said that it is going away belongs to that log; what is made
    anew under its name afterwards has a record with another version.
    """
    found = await CursorStore.take(log, name)
    if found is None:
        return
    present = await log.catalog.look()
    if present is None or present.version != record.version or not LedgerRecord(present.value).is_deleted:
        raise PersistenceFailed(f"The deletion of {log.name} was finished by another owner")
    await found.delete()


def _left_over(record: LedgerRecord) -> list[int]:
    """Ledgers to delete: those that the record says, and the one that its owner was making when it died."""
    return record.with_reserved(None).deleting


async def _present_record(log: LogParts, *, create: bool, properties: Mapping[str, str]) -> LedgerRecord:
    guarded = log.catalog.record
    found = await guarded.read()
    if found is not None:
        record = LedgerRecord(found.value)
        if not record.is_deleted:
            return record
        _log.info("%s: finishing its deletion", log.name)
        await finish_log_deletion(log, LogRecord(guarded, record))
        await guarded.read()
    if not create:
        raise TopicNotFound(f"There is no managed ledger {log.name}")
    record = LedgerRecord()
    record.properties.update(properties)
    return record


async def _ended_spans(log: LogParts, record: LedgerRecord) -> list[LedgerSpan]:
    """The ledgers on record, none of them open: the last ones, and any without numbers, are opened with recovery."""
    spans = record.spans()
    ended = []
    for index, span in enumerate(spans):
        is_late = index >= len(spans) - _FENCED_LEDGERS
        if (is_late or not span.entries) and not record.offloaded(span.ledger_id) and not await _end(log, span):
            continue
        ended.append(span)
    return ended


async def _end(log: LogParts, span: LedgerSpan) -> bool:
    """Close a ledger and take its numbers from where it ends; False when it does not exist and never held anything."""
    try:
        reader = await log.open_ledger(span.ledger_id)
    except NoSuchLedger:
        if span.entries and not log.settings.skip_lost_data:
            raise
        _log.error("%s: ledger %d with %d entries does not exist any more", log.name, span.ledger_id, span.entries)
        return False
    span.entries, span.size_bytes = reader.last_entry + 1, reader.length
    span.closed_ms = span.closed_ms or max(1, log.clock.now_ms())
    reader.close()
    return True
