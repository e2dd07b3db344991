# SPDX-License-Identifier: Apache-2.0
"""Letting old ledgers go, in two steps that a crash cannot tear apart.

First one guarded write takes the ledgers out of the list and puts them into the intent; from then on no reader finds
them. Then they are deleted one by one; whoever opens the log after a crash finds the intent and goes on. The record
forgets a finished deletion when it is next written for another reason.
Carries.
"""

import logging
from collections.abc import Callable, Mapping

from magnetar.errors import MagnetarError, NoSuchLedger
from magnetar.managed_ledger.cursors import Cursors
from magnetar.managed_ledger.log_record import LogRecord
from magnetar.managed_ledger.parts import LogParts
from magnetar.managed_ledger.retention import trimmable_ledgers

_log = logging.getLogger(__name__)


class Trimming:
    __slots__ = ("_cursors", "_gone", "_log", "_record", "keep")

    def __init__(self, log: LogParts, record: LogRecord, cursors: Cursors) -> None:
        self._log = log
        self._record = record
        self._cursors = cursors
        # Deleted, although the record still says that they must be.
        self._gone: dict[int, None] = {}
        # What the owner wants to know of entries that are let go, to be written in the same record.
        self.keep: Callable[[], Mapping[str, str]] = dict

    async def trim(self, *, heed_retention: bool = True) -> int:
        """Delete what no durable cursor needs and retention does not keep; returns how many ledgers left the list.

        BadVersion when another owner has the record.
        """
        ledgers = self._log.ledgers
        async with self._record.turn:
            count = self._trimmable(heed_retention)
            if count:
                # Out of the list before the write, so that no new cursor settles there meanwhile.
                dropped = ledgers.drop_oldest(count)
                try:
                    deleting = [*self._still_to_delete(), *(span.ledger_id for span in dropped)]
                    kept = {**self._record.present.kept, **self.keep()}
                    following = self._record.present.with_list(ledgers, deleting=deleting, kept=kept)
                    await self._record.write(following)
                except BaseException:
                    ledgers.restore_oldest(dropped)
                    raise
                self._gone.clear()
        if count:
            for span in dropped:
                tail = self._log.tails.pop(span.ledger_id, None)
                if tail is not None:
                    self._log.cache.forget(tail)
            for cursor in self._cursors.all():
                cursor.on_trimmed()
        await self.finish_deletions()
        return count

    async def finish_deletions(self) -> None:
        """Delete what the record says must go. What cannot be deleted now stays in the record for the next time."""
        for ledger_id in self._still_to_delete():
            if ledger_id in self._log.ledgers:
                continue
            try:
                await self._log.delete_ledger(ledger_id)
            except NoSuchLedger:
                pass
            except MagnetarError as error:
                _log.info("%s: ledger %d is deleted later: %s", self._log.name, ledger_id, error)
                continue
            self._gone[ledger_id] = None

    @property
    def has_work(self) -> bool:
        """True when `trim` would change something now."""
        return bool(self._still_to_delete() or self._trimmable())

    def _trimmable(self, heed_retention: bool = True) -> int:
        return trimmable_ledgers(
            list(self._log.ledgers),
            self._cursors.slowest_saved(),
            now_ms=self._log.clock.now_ms(),
            retention_ms=self._log.settings.retention_ms if heed_retention else 0,
            retention_bytes=self._log.settings.retention_bytes if heed_retention else 0,
        )

    def _still_to_delete(self) -> list[int]:
        return [ledger_id for ledger_id in self._record.present.deleting if ledger_id not in self._gone]
