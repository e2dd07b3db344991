# SPDX-License-Identifier: Apache-2.0
"""Reads one range of one topic partition as Arrow record batches, and makes sure that it is whole.

Runs in a Python worker of Spark. A message that was sent in chunks belongs to the range that holds its first chunk;
its other chunks are read behind the range's end if need be.
Carries.
"""

import asyncio
import logging
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from magnetar.client.chunks import ChunkAssembly
from magnetar.client.schema_info import SchemaInfo
from magnetar.errors import MagnetarError, TimedOut
from magnetar.ids import Position
from magnetar.names import TopicName
from magnetar.spark.cluster import Cluster, cluster
from magnetar.spark.columns import ERROR, METADATA_NAMES
from magnetar.spark.ledger_feed import Feed
from magnetar.spark.offsets import Place
from magnetar.spark.options import SourceOptions, Way
from magnetar.spark.positions import Positions, TopicLedgers
from magnetar.spark.ranges import Continuity, TopicRange, missing
from magnetar.spark.read_counts import ReadCounts, totals
from magnetar.spark.rows import PAYLOAD_BYTES_MAX, RowBuilder
from magnetar.spark.stored_entry import StoredEntry
from magnetar.spark.throttle import Throttle
from magnetar.spark.values import Buffer, ValueColumns

_CHUNKED_MESSAGES_MAX = 100

_log = logging.getLogger(__name__)


class RangeReader:
    """Made for one range, used once."""

    def __init__(self, options: SourceOptions, columns: spark.StructType, info: SchemaInfo, span: TopicRange) -> None:
        assert span.start.after is not None
        assert span.end.after is not None
        self._options = options
        self._span = span
        self._start: Place = span.start.after
        self._end: Place = span.end.after
        names = [one.name for one in columns.fields if one.name not in METADATA_NAMES and one.name != ERROR]
        self._values = ValueColumns(info, names)
        self._builder = RowBuilder(span.topic, columns, self._values, options.bad_rows, options.rows_per_batch_max)
        self._continuity = Continuity(span, skips_missing=not options.fail_on_data_loss)
        self._chunks = ChunkAssembly(_CHUNKED_MESSAGES_MAX, 0)
        self._begun: dict[str, StoredEntry] = {}
        self._throttle = Throttle(options.read_bytes_per_s_max)
        self.counts = ReadCounts()

    def batches(self) -> Iterator[pa.RecordBatch]:
        here = cluster(self._options.connection)
        feed = here.run(self._opened(here))
        try:
            while (entries := self._taken(here, feed)) is not None:
                for entry in entries:
                    is_last = self._take(here, entry)
                    if self._builder.is_full or is_last:
                        yield from self._made()
                    if is_last:
                        return
            yield from self._made()
        finally:
            here.run(feed.close())
            self.counts.skipped = self._continuity.skipped
            self.counts.dropped = self._builder.dropped
            totals.add(self.counts)
            level = logging.WARNING if self.counts.skipped or self.counts.dropped else logging.INFO
            _log.log(level, "%s: %s", self._span, self.counts)

    def _made(self) -> Iterator[pa.RecordBatch]:
        """What was built since the last time, without the rows that no condition wants."""
        made = self._builder.take()
        if made is not None and self._options.keys is not None:
            wanted = pa.array(sorted(self._options.keys), pa.binary())
            made = made.filter(pc.is_in(made.column("__key"), wanted))
        if made is not None and made.num_rows:
            self.counts.rows += made.num_rows
            yield made

    async def _opened(self, here: Cluster) -> Feed:
        timeout_s = self._options.read_timeout_ms / 1000
        ledgers = None
        if self._span.ledgers:
            is_all = self._options.way is Way.BOOKIES
            ledgers = TopicLedgers(await here.storage(), list(self._span.ledgers), is_all)
        return await Positions(here.core(), self._span.topic, timeout_s, ledgers).feed(self._first())

    def _first(self) -> Position:
        """The first entry that is wanted, as far as that is known: the one behind a whole entry has the next number."""
        if self._start.messages is None and self._span.ledgers and self._start.entry_id >= 0:
            return Position(self._start.ledger_id, self._start.entry_id + 1)
        return self._start.position

    async def _next(self, feed: Feed) -> list[StoredEntry]:
        entries = await feed.take(self._options.read_timeout_ms / 1000)
        size = sum(entry.size for entry in entries)
        wait_s = self._throttle.wait_s(size, asyncio.get_running_loop().time())
        if wait_s:
            await asyncio.sleep(wait_s)
        self.counts.entries += len(entries)
        self.counts.bytes += size
        return entries

    def _taken(self, here: Cluster, feed: Feed) -> list[StoredEntry] | None:
        """What came; None where nothing more will come and the options take that."""
        try:
            return here.run(self._next(feed))
        except TimedOut:
            if self._options.fail_on_data_loss:
                raise missing(self._span.topic, f"messages up to {self._end}") from None
            _log.warning("%s: nothing came up to %s; the rest is skipped", self._span.topic, self._end)
            return None

    def _take(self, here: Cluster, entry: StoredEntry) -> bool:
        """Add what of the entry belongs to the range; true if the range is complete with it."""
        if self._start.covers(entry.position, entry.messages - 1):
            return False
        if entry.position > self._end.position:
            return self._take_behind_end(entry)
        self._continuity.check(entry.position, entry.first_index, entry.messages)
        if not self._values.knows(entry.metadata.schema_version):
            self._learn(here, entry.metadata.schema_version)
        if entry.is_chunk:
            if entry.metadata.chunk_id == 0:
                self._begun[entry.metadata.uuid] = entry
            self._add_chunk(entry)
        elif not entry.is_marker:
            self.counts.messages += self._builder.add(entry, self._start, self._end)
        return entry.position == self._end.position and not self._begun

    def _take_behind_end(self, entry: StoredEntry) -> bool:
        if not self._begun:
            # The last entry of the range itself did not come.
            if self._options.fail_on_data_loss:
                raise missing(self._span.topic, f"messages up to {self._end}")
            return True
        if entry.is_chunk:
            self._add_chunk(entry)
        return not self._begun

    def _add_chunk(self, entry: StoredEntry) -> None:
        metadata = entry.metadata
        if metadata.uuid not in self._begun:
            return
        whole = self._chunks.add(metadata, entry.payload, entry.position, metadata.publish_time, PAYLOAD_BYTES_MAX)
        if whole is not None:
            del self._begun[metadata.uuid]
            payload: Buffer = bytes(whole.buffer)
            self._builder.add(entry, Place(-1, -1), Place(*entry.position), payload)

    def _learn(self, here: Cluster, version: bytes) -> None:
        core = here.client
        topic = TopicName.parse(self._span.topic)

        async def ask() -> SchemaInfo | None:
            shared = core.core
            found = await shared.retried(lambda: shared.lookup.schema(topic, version))
            return None if found is None else found[0]

        try:
            self._values.learn(version, here.run(ask()))
        except MagnetarError as error:
            _log.info("%s: schema version %s is not known: %s", topic, version.hex(), error)
            self._values.learn(version, None)
