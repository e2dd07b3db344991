# SPDX-License-Identifier: Apache-2.0
"""A table in Delta's format: the log that says which Parquet files it has, and up to which batch of which writer.

Spark writes the files; they are nobody's until a commit here names them. A commit carries its writer and the number of
its batch (Delta's application transactions): a batch that comes again is found there, and of two that come at once one
is refused. Needs the library deltalake (`pip install magnetar[delta]`), and no jar. Never reads a row.
Carries.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from magnetar.errors import BadSetting
from magnetar.spark.archive.archive_log import local_path

if TYPE_CHECKING:
    from deltalake import DeltaTable

NO_BATCH: Final = -1
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


class NewFile(NamedTuple):
    """A Parquet file below the table's directory, and its rows."""

    path: str
    rows: int


def check_library() -> None:
    """Raises BadSetting where tables in this format cannot be written."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise BadSetting("the format delta needs the library deltalake: pip install 'magnetar[delta]'") from None


class DeltaLog:
    """The table in one directory, as one writer sees it."""

    def __init__(self, path: str, writer: str) -> None:
        check_library()
        self.path = local_path(path)
        self._writer = writer

    def _table(self) -> "DeltaTable | None":
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.path)
        except TableNotFoundError:
            return None

    def last_batch(self) -> int:
        """Of this writer; NO_BATCH where none is in the table."""
        table = self._table()
        return NO_BATCH if table is None else self._batch_in(table)

    def _batch_in(self, table: "DeltaTable") -> int:
        found = table.transaction_version(self._writer)
        return NO_BATCH if found is None else int(found)

    def append(
        self, batch: int, files: Sequence[NewFile], columns: Mapping[str, Any], partition_by: Sequence[str]
    ) -> bool:
        """The table has these files from now on; false where it has this batch already.

        `columns` are Spark's schema as JSON, partition columns included. Raises BadSetting where they do not go with
        the table's.
        """
        from deltalake import CommitProperties, DeltaTable, Schema, Transaction
        from deltalake.exceptions import CommitFailedError

        schema = Schema.from_json(json.dumps(columns))
        table = self._table()
        if table is None:
            table = DeltaTable.create(self.path, schema, mode="ignore", partition_by=list(partition_by))
        if self._batch_in(table) >= batch:
            return False
        self._grow(table, schema)
        try:
            table.create_write_transaction(
                [self._action(one, partition_by) for one in files],
                mode="append",
                schema=table.schema(),
                partition_by=list(partition_by),
                commit_properties=CommitProperties(app_transactions=[Transaction(self._writer, batch)]),
            )
        except CommitFailedError:
            if self.last_batch() >= batch:
                return False
            raise
        return True

    def _grow(self, table: "DeltaTable", schema: Any) -> None:
        """Columns that are new to the table are added to it; a column keeps its type."""
        from deltalake.exceptions import DeltaError, SchemaMismatchError

        known = {field.name: field for field in table.schema().fields}
        new = [field for field in schema.fields if field.name not in known or known[field.name].type != field.type]
        if not new:
            return
        try:
            table.alter.add_columns(new)
        except (SchemaMismatchError, DeltaError) as error:
            names = ", ".join(field.name for field in new)
            raise BadSetting(f"the table {self.path} has other types for {names}: {error}") from None

    def _action(self, file: NewFile, partition_by: Sequence[str]) -> Any:
        from deltalake.transaction import AddAction

        stat = (Path(self.path) / file.path).stat()
        return AddAction(
            path=file.path,
            size=stat.st_size,
            partition_values=_partition_values(file.path, partition_by),
            modification_time=int(stat.st_mtime * 1000),
            data_change=True,
            stats=json.dumps({"numRecords": file.rows}),
        )


def _partition_values(path: str, names: Sequence[str]) -> dict[str, str | None]:
    """From the directories that Spark made for them."""
    found = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    written = {unquote(name): unquote(value) for name, value in found.items()}
    return {name: None if written[name] == _NO_VALUE else written[name] for name in names}
