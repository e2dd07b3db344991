# SPDX-License-Identifier: Apache-2.0
"""A table of the latest row of each key, as Parquet: a directory of versions and a file that names the current one.

A micro-batch makes the next version from the current one and its rows, durable; naming it is one atomic step. A batch
that comes again finds its version current and does nothing. The version before stays for those who still read it. A
version of which files are missing, and a table that does not say which is current, are told and not taken for less.
Carries.
"""

import json
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as functions

from magnetar.errors import DamagedRecord
from magnetar.runtime.loop_thread import LoopThread
from magnetar.runtime.real_disk import RealDisk
from magnetar.spark.archive.archive_log import local_path
from magnetar.spark.pipelines.delta_table import synced_files
from magnetar.spark.pipelines.jdbc_table import check_begun, query_of

CURRENT: Final = "_current.json"
VERSIONS_KEPT: Final = 2
_FILE_BYTES_MAX: Final = 1 << 16
_FIRST: Final = "v000000000000"
_RANK: Final = "__rank"
_DELETED: Final = "__deleted"


class KeyedTable:
    def __init__(
        self,
        path: str,
        keys: tuple[str, ...],
        order_by: str | None = None,
        deleted_when: str | None = None,
    ) -> None:
        """`order_by`: an expression that grows, such as `__index`; of equal rows a later batch's wins."""
        self._path = local_path(path)
        self._keys = keys
        self._order_by = order_by
        self._deleted_when = deleted_when

    def append(self, frame: DataFrame, batch: int) -> None:
        thread, disk = LoopThread("table"), RealDisk(self._path)
        try:
            thread.run(disk.make_directory("."))
            current = thread.run(_current(disk))
            query = query_of(frame)
            if current is None:
                thread.run(_check_new(disk))
                check_begun(-1, batch, f"the table {self._path}")
            if current is not None and current["query"] == query and current["batch"] >= batch:
                return
            name = _FIRST if current is None else f"v{int(current['version'][1:]) + 1:012d}"
            merged = self._merged(frame, None if current is None else str(current["version"]))
            merged.write.mode("overwrite").parquet(f"file://{self._path}/{name}")
            files = thread.run(synced_files(disk, name))
            made = {"version": name, "query": query, "batch": batch, "files": len(files)}
            thread.run(disk.replace_file(CURRENT, json.dumps(made).encode()))
            thread.run(_forget(disk, name))
        finally:
            thread.run(disk.close())
            thread.close()

    def _merged(self, frame: DataFrame, version: str | None) -> DataFrame:
        fresh = frame.withColumn("__batch", functions.lit(1))
        deleted = functions.expr(self._deleted_when) if self._deleted_when else functions.lit(False)
        fresh = fresh.withColumn(_DELETED, functions.coalesce(deleted, functions.lit(False)))
        if version is not None:
            stored = frame.sparkSession.read.parquet(f"file://{self._path}/{version}")
            stored = stored.withColumn("__batch", functions.lit(0)).withColumn(_DELETED, functions.lit(False))
            fresh = stored.unionByName(fresh, allowMissingColumns=True)
        order = [functions.col("__batch").desc()]
        if self._order_by is not None:
            order = [functions.expr(self._order_by).desc(), *order]
        window = Window.partitionBy(*self._keys).orderBy(*order)
        ranked = fresh.withColumn(_RANK, functions.row_number().over(window))
        return ranked.where(f"{_RANK} = 1 and not {_DELETED}").drop(_RANK, _DELETED, "__batch")


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """The current version."""
    thread, disk = LoopThread("table"), RealDisk(local_path(path))
    try:
        current = thread.run(_current(disk))
    finally:
        thread.run(disk.close())
        thread.close()
    if current is None:
        raise FileNotFoundError(f"{path} holds no version of a table yet")
    return spark.read.parquet(f"file://{local_path(path)}/{current['version']}")


async def _current(disk: RealDisk) -> dict[str, Any] | None:
    """Raises DamagedRecord where it cannot be read, or names a version that is not whole."""
    if not await disk.exists(CURRENT):
        return None
    try:
        found: dict[str, Any] = json.loads(await disk.read_file(CURRENT, bytes_max=_FILE_BYTES_MAX))
        version, made = str(found["version"]), found.get("files")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedRecord(f"{CURRENT} does not say which version of the table is current: {error!r}") from None
    names = await disk.list(version) if await disk.exists(version) else []
    present = len([name for name in names if name.endswith(".parquet")])
    # What was made before the number was noted has none.
    if not present or made not in (None, present):
        raise DamagedRecord(
            f"{present} of the {made or 'some'} files of the table's current version {version} are there"
        )
    return found


async def _check_new(disk: RealDisk) -> None:
    """A table without a current version is a new one, of which a crash may have left the first."""
    later = [name for name in await disk.list(".") if name.startswith("v") and name > _FIRST]
    if later:
        raise DamagedRecord(f"{CURRENT} is gone, and the table is not new: there is {later[-1]}")


async def _forget(disk: RealDisk, name: str) -> None:
    """Versions that are older than the ones kept, and those that a crash left unnamed."""
    versions = [one for one in await disk.list(".") if one.startswith("v") and one <= name]
    for old in versions[:-VERSIONS_KEPT]:
        await disk.remove_directory(old)
