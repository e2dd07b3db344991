# SPDX-License-Identifier: Apache-2.0
"""From one ledger to the next: rolling a full one, replacing a failed one, opening the first, closing an idle one.

The order is what makes it safe. A ledger comes on record (the managed ledger's list) only when the one before it is
closed and its end is on record; nothing in it is told before that. So whoever takes over finds every told entry in
the list, and no ledger but the last can be open. Roll: create the next, send appends there, drain the old one, close
it, write the list, tell. Failure: close the failed ledger by recovery, take the end that recovery found (R10), create
the next, write the list, then append again what the failed ledger does not hold.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from magnetar.errors import (
    BadVersion,
    Damaged,
    LedgerFenced,
    MagnetarError,
    MetadataError,
    NoSuchLedger,
    PersistenceFailed,
)
from magnetar.ledger.writer import LedgerWriter
from magnetar.managed_ledger.ledger_list import LedgerSpan
from magnetar.managed_ledger.ledger_record import LedgerRecord
from magnetar.managed_ledger.ledger_tail import LedgerTail
from magnetar.managed_ledger.log_record import LogRecord
from magnetar.managed_ledger.parts import LogParts

if TYPE_CHECKING:
    from magnetar.managed_ledger.appender import Appender

Result = TypeVar("Result")

# How long an owner whose ledger was fenced waits for the store to say whose the log is.
_PROOF_S: Final = 2.0

_log = logging.getLogger(__name__)


class OpenLedger:
    """A ledger being written: its writer, its share of the log, its newest entries."""

    __slots__ = ("born_s", "is_over", "span", "tail", "writer")

    def __init__(self, writer: LedgerWriter, header_bytes: int, born_s: float) -> None:
        self.writer = writer
        self.span = LedgerSpan(writer.ledger_id)
        self.tail: Final = LedgerTail(writer.ledger_id, header_bytes)
        self.born_s = born_s
        # Closed or given up: nothing will be confirmed in it any more.
        self.is_over = False

    @property
    def is_drained(self) -> bool:
        return self.span.entries == self.writer.last_add_pushed + 1


class Succession:
    __slots__ = ("_appender", "_log", "_loop", "_record")

    def __init__(self, log: LogParts, record: LogRecord, appender: "Appender") -> None:
        self._log = log
        self._record = record
        self._appender = appender
        self._loop = asyncio.get_running_loop()

    # --- the ways to the next ledger ----------------------------------------------------------

    async def open_first(self) -> None:
        """A log without any ledger gets one, so that it has a place to begin; raises what keeps it from that."""
        following = await self._insist(self._create)
        await self._insist(lambda: self._list(following))
        if not self._appender.is_over:
            self._appender.adopt(following)

    async def open_next(self) -> None:
        """The first append of this owner, or the first after an idle ledger was closed."""
        try:
            await self.open_first()
        except MagnetarError as error:
            self._give_up(error)

    async def roll(self) -> None:
        """Let the next ledger take the appends while the full one drains. Without a next one the full one goes on."""
        full = self._appender.current
        try:
            following = await self._in_time(self._create, self._deadline_s())
        except MagnetarError as error:
            _log.warning("%s: no new ledger, the full one goes on: %s", self._log.name, error)
            self._appender.postpone_rollover()
            return
        if full is None or self._appender.current is not full or full.writer.error or self._appender.refusal:
            await self._discard(following)
            return
        self._appender.adopt(following)

    async def finish_roll(self) -> None:
        """The full ledger is drained: close it, put both on record, tell what the new one has confirmed."""
        full, following = self._appender.previous, self._appender.current
        assert full is not None
        assert following is not None
        try:
            await self._insist(lambda: self._log.close_ledger(full.writer))
            self._close_span(full.span, full.writer.last_add_confirmed, full.writer.length)
            await self._insist(lambda: self._list(following))
        except BadVersion as error:
            self._give_up(error)
        except MagnetarError as error:
            _log.warning("%s: closing ledger %d: %s", self._log.name, full.span.ledger_id, error)
            await self.replace_failed()
        else:
            full.is_over = True
            if not self._appender.is_over:
                self._appender.on_listed(following)
                self._log.on_ledger_ended()

    async def replace_failed(self) -> None:
        """Close what failed, put the end that recovery found on record, go on in a new ledger."""
        appender = self._appender
        listed = appender.previous or appender.current
        unlisted = appender.current if appender.previous is not None else None
        if listed is None or appender.is_over:
            return
        try:
            last_entry, length = await self._insist(lambda: self._recovered_end(listed))
            if last_entry < listed.span.entries - 1:
                raise Damaged(
                    f"Ledger {listed.span.ledger_id} of {self._log.name} ends at entry {last_entry}, although entry "
                    f"{listed.span.entries - 1} was confirmed"
                )
            following = await self._insist(self._create)
            ended = LedgerSpan(listed.span.ledger_id)
            self._close_span(ended, last_entry, length)
            await self._insist(lambda: self._list_recovered(ended, following, unlisted))
        except MagnetarError as error:
            self._give_up(error)
            return
        if appender.is_over:
            return
        if unlisted is not None:
            appender.abandon(unlisted)
        appender.on_recovered(listed, last_entry)
        listed.span.end_as(ended)
        self._log.ledgers.append(following.span)
        appender.adopt(following)
        self._log.on_ledger_ended()

    async def prove_ownership(self) -> None:
        """Our ledger was fenced: the record, written as it is, tells whether the log is still ours.

        While the store does not say so, another owner may have the log, and whoever waits for us is told at once.
        """
        version = self._record.version
        try:
            async with asyncio.timeout(_PROOF_S), self._record.turn:
                await self._record.write(self._record.present)
        except BadVersion as error:
            self._give_up(error)
        except (MetadataError, TimeoutError) as error:
            if self._record.version != version:
                # Whoever replaces the ledger has written it meanwhile.
                return
            reason = str(error) or f"no answer for {_PROOF_S:g} s"
            self._give_up(LedgerFenced(f"{self._log.name} was fenced, and nobody says whose it is: {reason}"))

    async def close_idle(self) -> None:
        """Nothing was appended for long: close the ledger; the next append opens another."""
        idle = self._appender.current
        assert idle is not None
        self._appender.wait_for_ledger()
        try:
            await self._close_listed(idle)
        except BadVersion as error:
            self._give_up(error)
        except MagnetarError as error:
            _log.warning("%s: closing idle ledger %d: %s", self._log.name, idle.span.ledger_id, error)
            await self.replace_failed()

    async def end(self, *, terminated: bool) -> None:
        """Close the present ledger and write its end; raises what keeps it from that."""
        current = self._appender.current
        if current is not None:
            await self._close_listed(current, terminated=terminated)
        elif terminated:
            async with self._record.turn:
                await self._record.write(
                    self._record.present.with_list(self._log.ledgers, terminated=self._appender.last_confirmed)
                )

    # --- steps --------------------------------------------------------------------------------

    async def _create(self) -> OpenLedger:
        """A new ledger, whose id is on record before it exists: a crash leaves nothing that no one knows of."""
        ledger_id = await self._log.client.reserve_id()
        async with self._record.turn:
            await self._record.write(self._record.present.with_reserved(ledger_id))
        writer = await self._log.create_ledger(ledger_id, self._appender)
        return OpenLedger(writer, self._log.header_bytes, self._log.clock.elapsed_s())

    async def _list(self, following: OpenLedger) -> None:
        """Put a new ledger on record, together with the end of the one before it."""
        async with self._record.turn:
            spans = [*self._log.ledgers, following.span]
            await self._record.write(_listed(self._record.present.with_list(spans)))
            self._log.ledgers.append(following.span)

    async def _list_recovered(self, ended: LedgerSpan, following: OpenLedger, unlisted: OpenLedger | None) -> None:
        async with self._record.turn:
            spans = [ended if span.ledger_id == ended.ledger_id else span for span in self._log.ledgers]
            deleting = list(self._record.present.deleting)
            if unlisted is not None:
                deleting.append(unlisted.span.ledger_id)
            following_record = self._record.present.with_list([*spans, following.span], deleting=deleting)
            await self._record.write(_listed(following_record))

    async def _close_listed(self, ledger: OpenLedger, *, terminated: bool = False) -> None:
        await self._insist(lambda: self._log.close_ledger(ledger.writer))
        self._close_span(ledger.span, ledger.writer.last_add_confirmed, ledger.writer.length)
        end = self._appender.last_confirmed if terminated else None

        async def write() -> None:
            async with self._record.turn:
                await self._record.write(self._record.present.with_list(self._log.ledgers, terminated=end))

        await self._insist(write)
        self._appender.retire(ledger)
        self._log.on_ledger_ended()

    async def _recovered_end(self, ledger: OpenLedger) -> tuple[int, int]:
        """Fence our own ledger and learn where it ends: further than we know, if replies were lost."""
        reader = await self._log.open_ledger(ledger.span.ledger_id)
        try:
            return reader.last_entry, reader.length
        finally:
            reader.close()

    def _close_span(self, span: LedgerSpan, last_entry: int, length: int) -> None:
        span.entries = last_entry + 1
        span.size_bytes = length
        span.closed_ms = max(1, self._log.clock.now_ms())

    async def _discard(self, ledger: OpenLedger) -> None:
        """A ledger that never came on record and holds nothing."""
        ledger.is_over = True
        try:
            await self._log.delete_ledger(ledger.span.ledger_id)
        except NoSuchLedger:
            return
        except MagnetarError as error:
            _log.warning("%s: unused ledger %d stays behind: %s", self._log.name, ledger.span.ledger_id, error)

    async def _insist(self, step: Callable[[], Awaitable[Result]]) -> Result:
        """Try a step again while its error says that this can help, for as long as appends may wait."""
        settings = self._log.settings
        until_s = self._deadline_s()
        delay_s = settings.retry_delay_ms / 1000
        while True:
            try:
                return await self._in_time(step, until_s)
            except MagnetarError as error:
                if not error.retryable or self._loop.time() + delay_s >= until_s:
                    raise
                _log.info("%s: trying again in %.1f s: %s", self._log.name, delay_s, error)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, settings.retry_delay_max_ms / 1000)

    async def _in_time(self, step: Callable[[], Awaitable[Result]], until_s: float) -> Result:
        try:
            async with asyncio.timeout_at(until_s):
                return await step()
        except TimeoutError as error:
            timeout_ms = self._log.settings.append_timeout_ms
            raise PersistenceFailed(f"{self._log.name}: no answer for {timeout_ms} ms") from error

    def _deadline_s(self) -> float:
        return self._loop.time() + self._log.settings.append_timeout_ms / 1000

    def _give_up(self, error: MagnetarError) -> None:
        if isinstance(error, BadVersion):
            error = LedgerFenced(f"{self._log.name} has another owner now: {error}")
        if isinstance(error, LedgerFenced):
            self._log.on_fenced(error)
        elif not isinstance(error, PersistenceFailed | Damaged):
            error = PersistenceFailed(f"{self._log.name} cannot be written: {error}")
        self._appender.give_up(error)


def _listed(record: LedgerRecord) -> LedgerRecord:
    """The ledger that was being made is in the list now."""
    record.reserved = None
    return record
