# SPDX-License-Identifier: Apache-2.0
"""A table in Delta's format has each batch of each writer once, whoever else writes."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magnetar.errors import BadSetting
from magnetar.spark.delta_log import NO_BATCH, DeltaLog, NewFile

deltalake = pytest.importorskip("deltalake", reason="`make setup-all` installs deltalake")

COLUMNS = {"number": "long", "day": "string"}


def columns(fields: dict[str, Any]) -> dict[str, Any]:
    """As Spark writes a schema."""
    listed = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()]
    return {"type": "struct", "fields": listed}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


def write(table: Path, path: str, numbers: list[int]) -> NewFile:
    (table / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"number": pa.array(numbers, pa.int64())}), table / path)
    return NewFile(path, len(numbers))


def rows_of(table: Path) -> list[dict[str, Any]]:
    found = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: int(row["number"]))


def numbers_of(table: Path) -> list[int]:
    return [row["number"] for row in rows_of(table)]


def test_a_batch_that_comes_again_is_not_there_twice(table: Path) -> None:
    log = DeltaLog(str(table), "one")
    assert log.last_batch() == NO_BATCH
    assert log.append(0, [write(table, "day=a/0.parquet", [1, 2])], columns(COLUMNS), ["day"])
    assert not log.append(0, [write(table, "day=a/1.parquet", [1, 2])], columns(COLUMNS), ["day"])
    assert log.append(1, [write(table, "day=b/2.parquet", [3])], columns(COLUMNS), ["day"])
    assert not log.append(0, [write(table, "day=b/3.parquet", [1])], columns(COLUMNS), ["day"])
    assert log.last_batch() == 1
    assert rows_of(table) == [{"number": 1, "day": "a"}, {"number": 2, "day": "a"}, {"number": 3, "day": "b"}]


def test_writers_count_for_themselves(table: Path) -> None:
    for number, writer in enumerate(("one", "two")):
        log = DeltaLog(str(table), writer)
        assert log.append(0, [write(table, f"{writer}/day=a/0.parquet", [number])], columns(COLUMNS), ["day"])
    assert numbers_of(table) == [0, 1]


def test_of_two_who_come_at_once_one_is_refused(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second looks before the first commits, and commits after it."""
    first, second = DeltaLog(str(table), "one"), DeltaLog(str(table), "one")
    first.append(0, [write(table, "day=a/0.parquet", [0])], columns(COLUMNS), ["day"])
    seen = second._table()
    monkeypatch.setattr(second, "_table", lambda: seen)
    assert first.append(1, [write(table, "day=a/1.parquet", [1])], columns(COLUMNS), ["day"])
    late = [write(table, "day=a/2.parquet", [1])]
    assert not _appended(second, late)
    assert numbers_of(table) == [0, 1]


def _appended(log: DeltaLog, files: list[NewFile]) -> bool:
    try:
        return log.append(1, files, columns(COLUMNS), ["day"])
    except deltalake.exceptions.CommitFailedError:
        return False


def test_values_of_partitions_come_back_as_they_were(table: Path) -> None:
    """Spark writes odd characters and nulls into the names of directories in its own way."""
    log = DeltaLog(str(table), "one")
    files = [
        write(table, "batch-0/day=a%3Ab%2Fc/0.parquet", [0]),
        write(table, "batch-0/day=__HIVE_DEFAULT_PARTITION__/1.parquet", [1]),
        write(table, "batch-0/day=mit Leerzeichen é/2.parquet", [2]),
    ]
    assert log.append(0, files, columns(COLUMNS), ["day"])
    assert [row["day"] for row in rows_of(table)] == ["a:b/c", None, "mit Leerzeichen é"]


def test_columns_may_be_added_and_not_changed(table: Path) -> None:
    log = DeltaLog(str(table), "one")
    record: dict[str, Any] = {"type": "struct", "fields": columns({"a": "long"})["fields"]}
    log.append(0, [write(table, "0.parquet", [0])], columns({"number": "long", "in": record}), [])
    grown = {"type": "struct", "fields": columns({"a": "long", "b": "string"})["fields"]}
    log.append(1, [write(table, "1.parquet", [1])], columns({"number": "long", "in": grown, "note": "string"}), [])
    # A writer that knows less than the table adds its rows all the same.
    log.append(2, [write(table, "2.parquet", [2])], columns({"number": "long"}), [])
    assert numbers_of(table) == [0, 1, 2]
    names = json.loads(deltalake.DeltaTable(table).schema().to_json())["fields"]
    assert [one["name"] for one in names] == ["number", "in", "note"]
    assert [one["name"] for one in names[1]["type"]["fields"]] == ["a", "b"]
    with pytest.raises(BadSetting, match="other types for note"):
        log.append(3, [], columns({"note": "long"}), [])


def test_only_directories_are_tables() -> None:
    with pytest.raises(BadSetting, match="a directory"):
        DeltaLog("s3://bucket/table", "one")
