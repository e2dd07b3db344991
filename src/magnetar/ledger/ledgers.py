# SPDX-License-Identifier: Apache-2.0
"""The ledger client's front door: create, open, recover, delete ledgers.

Owns what all ledgers of one process share. A writer belongs to whoever created it; a reader to whoever opened it.
Assembles.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from magnetar.config.ledger import LedgerSettings
from magnetar.errors import BadSetting, WrongMasterKey
from magnetar.ledger.catalog import LedgerCatalog, Tokens, Versioned
from magnetar.ledger.channel import BookieChannel
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.placement import Chance, Placement, affinity_of
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.reader import LedgerReader
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.recoverer import Recoverer
from magnetar.ledger.segments import Segment
from magnetar.ledger.writer import LedgerWriter, WriterListener
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.ledger_metadata import TEXT_LINES


class Random(Chance, Tokens, Protocol):
    """random.Random fits."""


class Ledgers:
    def __init__(
        self,
        store: MetadataStore,
        channels: Callable[[str], BookieChannel],
        placement: Placement,
        clock: WallClock,
        random: Random,
        tasks: Tasks,
        settings: LedgerSettings,
    ) -> None:
        self.catalog = LedgerCatalog(store, random, settings)
        self.channels = channels
        self._clock = clock
        self.parts = LedgerParts(self.catalog, channels, placement, random, tasks, settings)

    async def reserve_id(self) -> int:
        """An id for `create`, so that it can be written down before the ledger exists. It need not be used."""
        return await self.catalog.reserve_id()

    async def create(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        digest: DigestType,
        password: bytes,
        custom_metadata: Mapping[str, bytes],
        listener: WriterListener,
        ledger_id: int | None = None,
    ) -> LedgerWriter:
        """A new ledger on record, and its only writer. NotEnoughBookies, or MetadataError when the store is away."""
        quorum = Quorum(ensemble_size, write_quorum, ack_quorum)
        if not quorum.is_valid():
            raise BadSetting(f"{quorum}: needed is ensemble size >= write quorum >= ack quorum >= 1.")
        ensemble = self.parts.placement.ensemble(quorum, affinity=affinity_of(custom_metadata))
        created_ms = self._clock.now_ms()

        def record(ledger_id: int, token: int) -> LedgerRecord:
            return LedgerRecord(
                ledger_id=ledger_id,
                quorum=quorum,
                segments=(Segment(0, ensemble),),
                digest=digest,
                password=password,
                created_ms=created_ms,
                token=token,
                custom=dict(custom_metadata),
            )

        return LedgerWriter(await self.catalog.create(record, ledger_id), self.parts, listener)

    async def open(self, ledger_id: int, *, password: bytes) -> LedgerReader:
        """The ledger, closed: when it is not, its writer is fenced and its end is found, written back and recorded.

        NoSuchLedger, WrongMasterKey, or BookieUnavailable when bookies that are needed do not answer.
        """
        known = await self._load(ledger_id, password)
        if not known.record.is_closed:
            known = await Recoverer(known, self.parts).recover()
        return LedgerReader(known, self.parts)

    async def open_without_recovery(self, ledger_id: int, *, password: bytes) -> LedgerReader:
        """The ledger as it is; an open one can be read up to what `read_last_confirmed` says; its writer goes on."""
        return LedgerReader(await self._load(ledger_id, password), self.parts)

    async def delete(self, ledger_id: int) -> None:
        """Forget the ledger; bookies collect its entries later. NoSuchLedger when it is not on record."""
        await self.catalog.delete(ledger_id)

    async def exists(self, ledger_id: int) -> bool:
        return await self.catalog.exists(ledger_id)

    async def _load(self, ledger_id: int, password: bytes) -> Versioned:
        known = await self.catalog.load(ledger_id)
        if known.record.form == TEXT_LINES:
            # The oldest form stores no password: the bookies judge the caller's.
            return known._replace(record=replace(known.record, password=password))
        if known.record.password != password:
            raise WrongMasterKey(f"The password of ledger {ledger_id} is another one.")
        return known
