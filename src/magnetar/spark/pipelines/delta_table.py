# SPDX-License-Identifier: Apache-2.0
"""Rows into a table in Delta's format, exactly once, without a jar.

Spark writes a micro-batch as Parquet into a directory of its own below the table; then one commit to the table's log
names these files and the batch's number. A batch that comes again finds its number and writes nothing.
Carries.
"""

import json
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from magnetar.runtime.chance import fresh_seed
from magnetar.runtime.loop_thread import LoopThread
from magnetar.runtime.real_disk import RealDisk
from magnetar.spark.delta_log import DeltaLog, NewFile
from magnetar.spark.pipelines.jdbc_table import check_begun, query_of

_TIMES: Final = "spark.sql.parquet.outputTimestampType"


class DeltaSink:
    """The target of one sink."""

    def __init__(self, path: str, sink: str, partition_by: tuple[str, ...] = ()) -> None:
        self._path = path
        self._sink = sink
        self._partition_by = partition_by

    def append(self, frame: DataFrame, batch: int) -> None:
        """One micro-batch; what is in the table already is not written again."""
        log = DeltaLog(self._path, f"{self._sink} {query_of(frame)}")
        last = log.last_batch()
        check_begun(last, batch, log.path)
        if last < batch:
            self._write(frame, log, batch)

    def write(self, frame: DataFrame, write_id: str | None) -> None:
        """A batch pipeline's rows: once for each id, and always without one."""
        log = DeltaLog(self._path, f"{self._sink} {write_id or f'{fresh_seed():016x}'}")
        if log.last_batch() < 0:
            self._write(frame, log, 0)

    def _write(self, frame: DataFrame, log: DeltaLog, batch: int) -> None:
        # Never the directory of another attempt: whoever is still at work there loses no file to us, nor we to it.
        folder = f"batch-{batch:012d}-{fresh_seed():016x}"
        session = frame.sparkSession
        times = session.conf.get(_TIMES)
        session.conf.set(_TIMES, "TIMESTAMP_MICROS")
        try:
            writer: Any = frame.write
            if self._partition_by:
                writer = writer.partitionBy(*self._partition_by)
            writer.parquet(f"file://{log.path}/{folder}")
        finally:
            if times is not None:
                session.conf.set(_TIMES, times)
        files = [NewFile(path, _rows_of(f"{log.path}/{path}")) for path in _durable(log.path, folder)]
        log.append(batch, files, json.loads(frame.schema.json()), self._partition_by)


def _rows_of(path: str) -> int:
    return int(pq.read_metadata(path).num_rows)


def _durable(table: str, folder: str) -> list[str]:
    """The Parquet files below a folder, which a power failure does not take away any more."""
    thread, disk = LoopThread("delta"), RealDisk(table)
    try:
        return thread.run(synced_files(disk, folder))
    finally:
        thread.run(disk.close())
        thread.close()


async def synced_files(disk: RealDisk, folder: str) -> list[str]:
    """The Parquet files below a folder, each of them durable from now on."""
    found: list[str] = []
    for name in await disk.list(folder):
        path = f"{folder}/{name}"
        if "=" in name and not name.endswith(".parquet"):
            found += await synced_files(disk, path)
        elif name.endswith(".parquet"):
            file = await disk.open(path)
            try:
                await file.sync()
            finally:
                await file.close()
            found.append(path)
    await disk.sync_directory(folder)
    return found
