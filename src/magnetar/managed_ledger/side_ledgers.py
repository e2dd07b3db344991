# SPDX-License-Identifier: Apache-2.0
"""Small ledgers beside a log, written once and read back: indexes that can be made again.

They have the log's quorums and digest and, as Pulsar's have, no password. Whoever writes one keeps its id.
Carries.
"""

from collections.abc import Mapping, Sequence

from magnetar.errors import NoSuchLedger
from magnetar.managed_ledger.cursor_ledger import CursorLedger
from magnetar.managed_ledger.parts import LogParts
from magnetar.wire.bookkeeper.digest import DigestType

_PASSWORD = b""


class SideLedgers:
    __slots__ = ("_log",)

    def __init__(self, log: LogParts) -> None:
        self._log = log

    async def reserve_id(self) -> int:
        """An id to write down before the ledger exists, so that a crash leaves no ledger that nobody knows."""
        return await self._log.client.reserve_id()

    async def write(self, ledger_id: int, entries: Sequence[bytes], about: Mapping[str, bytes]) -> None:
        """A closed ledger with these entries; all of it is durable when this returns."""
        settings = self._log.settings
        ledger = CursorLedger(settings.append_timeout_ms)
        ledger.writer = await self._log.client.create(
            ensemble_size=settings.ensemble_size,
            write_quorum=settings.write_quorum,
            ack_quorum=settings.ack_quorum,
            digest=DigestType[settings.digest],
            password=_PASSWORD,
            custom_metadata={"application": b"pulsar", **about},
            listener=ledger,
            ledger_id=ledger_id,
        )
        await ledger.append(list(entries))
        await ledger.writer.close()

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
