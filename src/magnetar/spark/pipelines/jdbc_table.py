# SPDX-License-Identifier: Apache-2.0
"""Rows into a table of a database, exactly once, through JDBC.

Spark writes a micro-batch to a table of its own beside the target; then one transaction moves the rows over and notes
the batch's number. A batch that comes again finds its number and does nothing. With keys, rows replace those of the
same key, and rows that say so delete them. Standard SQL only.
Carries.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as functions

from magnetar.errors import BadSetting, DamagedRecord

BATCHES_TABLE: Final = "magnetar_batches"
_IDENTIFIER: Final = re.compile(r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)?")
_CREDENTIALS: Final = ("user", "password")
_DELETED: Final = "magnetar_deleted"


@dataclass(frozen=True, slots=True)
class JdbcTable:
    """The target of one sink."""

    url: str
    table: str
    sink: str
    options: dict[str, str]
    keys: tuple[str, ...] = ()
    order_by: str | None = None
    deleted_when: str | None = None

    def __post_init__(self) -> None:
        for name in (self.table, *self.keys):
            if not _IDENTIFIER.fullmatch(name):
                raise BadSetting(f"{name!r} should be a plain name of a table or column")
        if self.keys and self.order_by is None:
            raise BadSetting(f"{self.sink}: key needs order-by, which says which row of a key is the last")

    @property
    def staged(self) -> str:
        return f"{self.table}_{re.sub(r'[^A-Za-z0-9]', '_', self.sink)}_staged"

    def append(self, frame: DataFrame, batch: int) -> None:
        """One micro-batch; what was written already is not written again."""
        jvm: Any = frame.sparkSession._jvm
        query = query_of(frame)
        last = self._last_batch(jvm, query)
        check_begun(last, batch, f"{BATCHES_TABLE} beside {self.table}")
        if last >= batch:
            return
        rows = self._rows(frame)
        columns = [name for name in rows.columns if name != _DELETED]
        options = {name: value for name, value in self.options.items() if name != "dbtable"}
        # The staged table is made anew each time, so that a batch that came half way leaves nothing.
        rows.write.format("jdbc").options(url=self.url, dbtable=self.staged, **options).mode("overwrite").save()
        if not self._exists(jvm, self.table):
            empty = rows.limit(0).drop(_DELETED)
            empty.write.format("jdbc").options(url=self.url, dbtable=self.table, **options).mode("append").save()
        self._transaction(jvm, [*self._moves(columns), *self._notes(query, batch)])

    def _rows(self, frame: DataFrame) -> DataFrame:
        """Columns that do not begin with `__`; with keys the last row of each, and whether it is a deletion."""
        kept = [name for name in frame.columns if not name.startswith("__")]
        rows = frame
        if self.deleted_when is not None:
            deleted = functions.when(functions.expr(self.deleted_when), 1).otherwise(0)
            rows, kept = rows.withColumn(_DELETED, deleted), [*kept, _DELETED]
        if self.keys:
            assert self.order_by is not None
            window = Window.partitionBy(*self.keys).orderBy(functions.expr(self.order_by).desc())
            rows = rows.withColumn("__rank", functions.row_number().over(window)).where("__rank = 1")
        return rows.select(*(functions.col(f"`{name}`") for name in kept))

    def _moves(self, columns: list[str]) -> list[str]:
        names = ", ".join(f'"{name}"' for name in columns)
        moves = []
        if self.keys:
            same = " and ".join(f'{self.table}."{key}" = {self.staged}."{key}"' for key in self.keys)
            moves.append(f"delete from {self.table} where exists (select 1 from {self.staged} where {same})")
        rest = f' where "{_DELETED}" = 0' if self.deleted_when is not None else ""
        moves.append(f"insert into {self.table} ({names}) select {names} from {self.staged}{rest}")
        return moves

    def _notes(self, query: str, batch: int) -> list[str]:
        sink = f"{self.sink} {query}".replace("'", "''")
        return [
            f"delete from {BATCHES_TABLE} where sink = '{sink}'",
            f"insert into {BATCHES_TABLE} (sink, batch) values ('{sink}', {batch})",
        ]

    # --- the database ------------------------------------------------------------------------------

    def _connect(self, jvm: Any) -> Any:
        properties = jvm.java.util.Properties()
        for name, value in _login(self.options).items():
            properties.setProperty(name, value)
        return jvm.java.sql.DriverManager.getConnection(self.url, properties)

    def _exists(self, jvm: Any, table: str) -> bool:
        connection = self._connect(jvm)
        try:
            schema, _, name = table.rpartition(".")
            for spelt in (name, name.upper(), name.lower()):
                found = connection.getMetaData().getTables(None, schema.upper() or None, spelt, None)
                if found.next():
                    return True
            return False
        finally:
            connection.close()

    def _last_batch(self, jvm: Any, query: str) -> int:
        """-1 where none was written."""
        if not self._exists(jvm, BATCHES_TABLE):
            self._transaction(
                jvm, [f"create table {BATCHES_TABLE} (sink varchar(200) not null, batch bigint not null)"]
            )
            return -1
        connection = self._connect(jvm)
        try:
            sink = f"{self.sink} {query}".replace("'", "''")
            found = connection.createStatement().executeQuery(
                f"select batch from {BATCHES_TABLE} where sink = '{sink}'"
            )
            return int(found.getLong(1)) if found.next() else -1
        finally:
            connection.close()

    def _transaction(self, jvm: Any, statements: list[str]) -> None:
        connection = self._connect(jvm)
        try:
            connection.setAutoCommit(False)
            statement = connection.createStatement()
            for text in statements:
                statement.executeUpdate(text)
            connection.commit()
        finally:
            # What was not committed is rolled back; a database may refuse to close before that.
            connection.rollback()
            connection.close()


def query_of(frame: DataFrame) -> str:
    """The id of the query whose batch this is; its checkpoint keeps it. Numbers of batches mean something beside it."""
    found = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise BadSetting("this Spark does not tell a batch the id of its query")
    return found


def check_begun(last: int, batch: int, place: str) -> None:
    """Raises DamagedRecord where a query's later batch comes to a place that knows none of those before (`last` -1)."""
    if last < 0 < batch:
        raise DamagedRecord(
            f"{place} knows none of the {batch} batches that this query has written: it was lost, or is another place. "
            "Restore it, or begin with another checkpoint"
        )


def _login(options: Mapping[str, str]) -> dict[str, str]:
    return {name: options[name] for name in _CREDENTIALS if name in options}
