# SPDX-License-Identifier: Apache-2.0
"""The way past the brokers: a topic's closed ledgers, found in the metadata and read from the bookies.

Reads only: it never fences, recovers or writes, so that whoever owns the topic does not notice. Whoever gives
`metadata.url` may read every topic; permissions of topics are the brokers' and are not asked here.
Carries.
"""

from collections import OrderedDict
from typing import Final

from magnetar.config.ledger import ChannelSettings, LedgerSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import NoSuchLedger
from magnetar.ids import Position
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.placement import RandomPlacement
from magnetar.ledger.reader import LedgerReader
from magnetar.ledger.tcp_channel import TcpChannels
from magnetar.managed_ledger.catalog import Catalog
from magnetar.managed_ledger.ledger_record import LedgerRecord
from magnetar.metadata.format_level import FormatLevel
from magnetar.metadata.json_record import decode_json
from magnetar.metadata.open import open_store
from magnetar.metadata.store import MetadataStore
from magnetar.names import TopicName
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.tasks import Tasks
from magnetar.spark.closed_ledger import ClosedLedger
from magnetar.spark.stored_entry import StoredEntry

READ_BYTES: Final = 4 * 1024 * 1024
READERS_MAX: Final = 16


class Storage:
    """Use `open`; belongs to the loop that it was opened on."""

    def __init__(self, store: MetadataStore, ledgers: Ledgers, tasks: Tasks) -> None:
        self._store = store
        self._ledgers = ledgers
        self.tasks = tasks
        self._readers: OrderedDict[int, LedgerReader] = OrderedDict()

    @classmethod
    async def open(cls, url: str) -> "Storage":
        """Raises MetadataError where the store does not answer, NewerFormat where the cluster writes what this version
        cannot read."""
        clock, settings = SystemClock(), MetadataSettings()
        # Stores in other processes keep nothing here.
        store = await open_store(url, disk=RealDisk("."), clock=clock, settings=settings)
        try:
            await FormatLevel(store, settings.format_level_max).check()
        except BaseException:
            await store.close()
            raise
        tasks = Tasks("spark storage", lambda *_: None)
        bookies = await Bookies.open(store, tasks)
        channels = TcpChannels(bookies.address, tasks, ChannelSettings())
        random = stream(fresh_seed(), "spark storage")
        # Nothing is ever written, so nothing is ever placed.
        placement = RandomPlacement(lambda: (), random)
        return cls(store, Ledgers(store, channels, placement, clock, random, tasks, LedgerSettings()), tasks)

    async def partitions(self, topic: TopicName) -> int:
        """How many a topic has on record; 0 where it is not partitioned."""
        record = await self._store.get(topic.partitioned_metadata_path)
        return 0 if record is None else int(decode_json(record.value).get("partitions", 0))

    async def closed_ledgers(self, topic: TopicName) -> list[ClosedLedger]:
        """The topic's ledgers from the oldest to the first that is still written, or that was moved to a tier."""
        found = await Catalog(self._store, topic.persistence_name).record.read()
        record = LedgerRecord(b"" if found is None else found.value)
        closed: list[ClosedLedger] = []
        for span in record.spans():
            if record.offloaded(span.ledger_id):
                break
            entries = span.entries if span.closed_ms else await self._entries_of_last(span.ledger_id)
            if entries is None:
                break
            closed.append(ClosedLedger(span.ledger_id, entries))
        return closed

    async def _entries_of_last(self, ledger_id: int) -> int | None:
        """An owner that left in order has closed its last ledger, although the topic's list does not say so."""
        try:
            reader = await self._reader(ledger_id)
        except NoSuchLedger:
            return None
        if not reader.is_closed:
            self._readers.pop(ledger_id).close()
            return None
        return reader.last_entry + 1

    async def _reader(self, ledger_id: int) -> LedgerReader:
        found = self._readers.get(ledger_id)
        if found is None:
            found = await self._ledgers.open_without_recovery(ledger_id, password=b"")
            self._readers[ledger_id] = found
            if len(self._readers) > READERS_MAX:
                self._readers.popitem(last=False)[1].close()
        self._readers.move_to_end(ledger_id)
        return found

    async def read(self, ledger: ClosedLedger, first_entry: int, bytes_max: int = READ_BYTES) -> list[StoredEntry]:
        """Entries from one on, one at least. Raises what the ledger client raises."""
        reader = await self._reader(ledger.ledger_id)
        bodies = await reader.read(first_entry, ledger.entries - 1, bytes_max=bytes_max)
        return [
            StoredEntry(Position(ledger.ledger_id, first_entry + offset), bytes(body))
            for offset, body in enumerate(bodies)
        ]

    async def first_from(self, ledgers: list[ClosedLedger], position: Position) -> StoredEntry | None:
        """The first entry at or behind a place that these ledgers hold; None if there is none."""
        for ledger in ledgers:
            first = position.entry_id if ledger.ledger_id == position.ledger_id else 0
            if ledger.ledger_id >= position.ledger_id and max(0, first) < ledger.entries:
                return (await self.read(ledger, max(0, first), 1))[0]
        return None
