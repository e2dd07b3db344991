# SPDX-License-Identifier: Apache-2.0
"""A log without ledgers of its own: it shows another one's entries to its own cursors.

Its record holds properties, its cursors are kept below it as any log's are; the ledgers are the other log's, which
alone writes, trims and deletes them. So whatever changes or deletes ledgers does nothing here.
Carries.
"""

from collections.abc import Callable, Mapping

from magnetar.errors import BadVersion, LedgerFenced, NotSupported
from magnetar.ids import Position
from magnetar.managed_ledger.catalog import Catalog
from magnetar.managed_ledger.cursors import Cursors
from magnetar.managed_ledger.follower import Follower
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.log_record import LogRecord
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.opening import take_over
from magnetar.managed_ledger.parts import LogParts, PersistListener


class ShadowLedger(ManagedLedger):
    def __init__(self, log: LogParts, record: LogRecord, cursors: Cursors, follower: Follower) -> None:
        super().__init__(log, record, cursors, follower)
        self._follower = follower
        # Told by whoever sends the other log's messages here, too; a hint that saves waiting.
        self.on_told: Callable[[Position], None] = follower.on_told

    @staticmethod
    async def open_shadow(
        log: LogParts,
        source: Catalog,
        listener: PersistListener,
        *,
        create: bool,
        properties: Mapping[str, str],
        on_closed: Callable[[ManagedLedger], None],
    ) -> "ShadowLedger":
        """Take the shadow's own record and cursors over, and follow the other log from where it is now."""
        record = await take_over(log, create=create, properties=properties)
        if len(log.ledgers):
            raise NotSupported(f"{log.name} has ledgers of its own and cannot show those of {source.name}")
        cursors = Cursors(log)
        follower = Follower(log, source, cursors, listener)
        ledger = ShadowLedger(log, record, cursors, follower)
        try:
            await follower.open()
            await ledger._recover_cursors()
        except BadVersion as error:
            await follower.end(terminated=False)
            raise LedgerFenced(f"{log.name} was taken over by another owner while it was opened: {error}") from error
        except BaseException:
            await follower.end(terminated=False)
            raise
        ledger._on_closed = on_closed
        follower.start()
        return ledger

    @property
    def is_terminated(self) -> bool:
        return self._follower.is_terminated

    async def terminate(self) -> Position:
        raise NotSupported(f"{self.name} shows another topic's messages; terminate that one")

    async def trim(self) -> int:
        return 0

    async def truncate(self) -> int:
        raise NotSupported(f"{self.name} shows another topic's messages; truncate that one")

    def upkeep(self) -> None:
        return

    async def delete(self) -> None:
        """Delete the record and the cursors; the other log is left as it is."""
        await self._follower.end(terminated=False)
        self._log.ledgers = LedgerList()
        await super().delete()

    def _ask_for_trimming(self) -> None:
        return
