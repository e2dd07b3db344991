# SPDX-License-Identifier: Apache-2.0
"""Small ledgers beside a log, written once and read back: indexes that can be made again.

They have the log's quorums and digest and, as Pulsar's have, no password. Whoever writes one keeps its id.
Carries.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.errors import NoSuchLedger
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.placement import Affinity, affinity_metadata
from magnetar.ledger.reader import LedgerReader
from magnetar.managed_ledger.cursor_ledger import CursorLedger
from magnetar.wire.bookkeeper.digest import DigestType

_PASSWORD = b""


class Home(Protocol):
    """Where ledgers are kept: a log's parts, or a process's."""

    @property
    def settings(self) -> ManagedLedgerSettings: ...

    @property
    def client(self) -> Ledgers: ...


class SideLedgers:
    __slots__ = ("_log",)

    def __init__(self, log: Home) -> None:
        self._log = log

    async def reserve_id(self) -> int:
        """An id to write down before the ledger exists, so that a crash leaves no ledger that nobody knows."""
        return await self._log.client.reserve_id()

    async def write(self, ledger_id: int, entries: Sequence[bytes], about: Mapping[str, bytes]) -> None:
        """A closed ledger with these entries; all of it is durable when this returns."""
        ledger = await self.create(ledger_id, about)
        await ledger.append(list(entries))
        await ledger.writer.close()

    async def create(self, ledger_id: int, about: Mapping[str, bytes]) -> CursorLedger:
        """An empty ledger for whoever has more to write than fits in memory, and closes it."""
        settings = self._log.settings
        ledger = CursorLedger(settings.append_timeout_ms)
        ledger.writer = await self._log.client.create(
            ensemble_size=settings.ensemble_size,
            write_quorum=settings.write_quorum,
            ack_quorum=settings.ack_quorum,
            digest=DigestType[settings.digest],
            password=_PASSWORD,
            custom_metadata={
                "application": b"pulsar",
                **affinity_metadata(Affinity(settings.bookie_groups, settings.bookie_groups_secondary)),
                **about,
            },
            listener=ledger,
            ledger_id=ledger_id,
        )
        return ledger

    async def open(self, ledger_id: int) -> LedgerReader:
        """The whole ledger, for whoever reads much of it and closes it. NoSuchLedger when it is not there."""
        return await self._log.client.open(ledger_id, password=_PASSWORD)

    async def read(self, ledger_id: int, entry_id: int) -> bytes:
        """One entry. NoSuchLedger or NoSuchEntry when it is not there."""
        reader = await self._log.client.open(ledger_id, password=_PASSWORD)
        try:
            return bytes((await reader.read(entry_id, entry_id, bytes_max=1))[0])
        finally:
            reader.close()

    async def delete(self, ledger_id: int) -> None:
        """Nothing happens when there is none."""
        try:
            await self._log.client.delete(ledger_id)
        except NoSuchLedger:
            return
