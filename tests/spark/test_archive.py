# SPDX-License-Identifier: Apache-2.0
"""A topic's closed ledgers as Parquet, once each whatever ends the archiver; and history with its live tail."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import datasource as pushed

from magnetar.blocking import Client
from magnetar.errors import BadSetting, CannotStart
from magnetar.spark import explain
from magnetar.spark.archive.archive_log import ArchiveDirectory, log_of
from magnetar.spark.archive.archiver import Archiver
from magnetar.spark.closed_ledger import ClosedLedger
from magnetar.spark.ranges import MessagesMissing
from tests.processes import StandaloneProcess
from tests.spark.in_process import read_batch
from tests.spark.test_source_reads import publish

Archive = Callable[..., int]


class Crash(Exception):
    pass


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def archive(spark: SparkSession, admin: httpx.Client, options: dict[str, str], path: str) -> Archive:
    def run(**more: Any) -> int:
        def ledgers_of(topic: str) -> list[ClosedLedger]:
            told = admin.get(f"/{topic.replace('://', '/')}/internalStats").json()["ledgers"]
            return [ClosedLedger(one["ledgerId"], one["entries"]) for one in told[:-1]]

        includes_open = more.pop("includes_open", False)
        given = {**options, **more.pop("options", {})}
        archiver = Archiver(spark, given, path, ledgers_of=ledgers_of, **more)
        return sum(record.rows for record in archiver.run(includes_open=includes_open))

    return run


@pytest.fixture
def close_ledger(admin: httpx.Client, topic: str) -> Callable[[], None]:
    def close() -> None:
        assert admin.put(f"/{topic.replace('://', '/')}/unload").is_success

    return close


def stored(path: str) -> Counter[int]:
    """What anybody who reads Parquet sees."""
    if not any(Path(path).glob("__day=*")):
        return Counter()
    found = pq.read_table(path, columns=["value"], ignore_prefixes=["_magnetar", "_staging", "."])
    return Counter(int(value) for value in found.column("value").to_pylist())


@pytest.mark.feature("F-SPK-10", "F-PLAT-12")
def test_closed_ledgers_once_and_history_with_its_tail(
    spark: SparkSession,
    client: Client,
    admin: httpx.Client,
    topic: str,
    options: dict[str, str],
    archive: Archive,
    path: str,
    close_ledger: Callable[[], None],
) -> None:
    assert admin.put(f"/{topic.replace('://', '/')}/partitions", content="2").is_success
    # Without a subscription or retention a closed ledger may go at any time.
    client.subscribe(topic, "hold").close()
    publish(client, topic, 200)
    close_ledger()
    publish(client, topic, 50, start=200)
    assert archive(step_messages_max=150) == 200
    assert archive() == 0
    close_ledger()
    publish(client, topic, 25, start=250)
    assert archive() == 50
    assert stored(path) == Counter(range(250))
    assert len(log_of(path)) >= 3
    days = [one.name for one in Path(path).iterdir() if not one.name.startswith("_m")]
    assert all(name.startswith("__day=2") for name in days)
    whole = {**options, "history": path, "metadata": "all", "filterPushDown": "true"}
    found = read_batch(whole)
    assert found.numbers == list(range(275))
    assert "from the archive" in explain(whole)
    assert "through broker" in explain(whole)
    # The same rows as the topic itself gives, metadata and all, while it has them.
    same = sorted(read_batch({**options, "metadata": "all"}).rows, key=lambda row: int(row["value"]))
    assert sorted(found.rows, key=lambda row: int(row["value"])) == same
    few = read_batch(whole, [pushed.EqualTo(("__partition",), 1), pushed.LessThan(("__index",), 10)])
    assert few.numbers == sorted(int(row["value"]) for row in same if row["__partition"] == 1 and row["__index"] < 10)
    frame = spark.read.format("pulsar").options(**options, history=path, columns="value").load()
    assert sorted(int(row.value) for row in frame.collect()) == list(range(275))


def in_order(rows: list[dict[str, Any]]) -> str:
    """A hash of a topic's values in the order of its messages."""
    hashed = hashlib.sha256()
    for row in sorted(rows, key=lambda row: (row["__partition"], row["__index"])):
        hashed.update(b"%d:%s;" % (row["__index"], row["value"]))
    return hashed.hexdigest()


@pytest.mark.feature("F-SPK-10")
@pytest.mark.parametrize("point", ["decide", "publish", "half", "forget_staged", "_hold"])
def test_a_crash_anywhere_archives_everything_once(
    client: Client,
    options: dict[str, str],
    topic: str,
    archive: Archive,
    path: str,
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(client, topic, 50)
    assert archive(includes_open=True) == 50
    publish(client, topic, 25, start=50)
    with monkeypatch.context() as patch:
        _crash(patch, point)
        with pytest.raises(Crash):
            archive(includes_open=True)
    # Nobody sees a row twice in the meantime, and history is whole.
    assert max(stored(path).values()) == 1
    assert read_batch({**options, "history": path}).numbers == list(range(75))
    publish(client, topic, 25, start=75)
    archive(includes_open=True)
    assert stored(path) == Counter(range(100))
    assert not (Path(path) / "_staging").exists()
    # The table has the topic's rows in the topic's order, and so has history with its tail.
    columns = ["value", "__partition", "__index"]
    table = pq.read_table(path, columns=columns, ignore_prefixes=["_magnetar", "_staging", "."]).to_pylist()
    everything = in_order(read_batch({**options, "metadata": "all"}).rows)
    assert in_order(table) == everything
    assert in_order(read_batch({**options, "metadata": "all", "history": path}).rows) == everything


@pytest.mark.feature("F-SPK-05", "F-SQL-06", "F-PLAT-12")
def test_history_comes_from_files_while_bookies_have_none_of_it_and_the_broker_is_idle(
    client: Client,
    admin: httpx.Client,
    topic: str,
    options: dict[str, str],
    archive: Archive,
    path: str,
    close_ledger: Callable[[], None],
) -> None:
    """The archive is where old data lies: the topic has forgotten it, and reading it costs the cluster nothing."""
    client.subscribe(topic, "hold").close()
    publish(client, topic, 500)
    close_ledger()
    publish(client, topic, 25, start=500)
    assert archive() == 500
    assert admin.delete(f"/{topic.replace('://', '/')}/truncate").is_success
    with pytest.raises(MessagesMissing, match="messages 0 to"):
        read_batch({**options, "startingOffsets": json.dumps({topic: 0})})
    whole = {**options, "history": path, "metadata": "all"}
    old = read_batch(whole, [pushed.LessThan(("__index",), 500)])
    assert old.numbers == list(range(500))
    assert (old.counts.rows, old.counts.entries) == (500, 0), "no entry came from a broker or a bookie"
    everything = read_batch(whole)
    assert everything.numbers == list(range(525))
    assert everything.counts.entries == 1


def _crash(patch: pytest.MonkeyPatch, point: str) -> None:
    """The next step ends before it does what the point says; `half` moves files and forgets to say so."""

    def crash(*_: object) -> None:
        raise Crash

    if point == "_hold":
        calls: Iterator[Any] = iter([lambda *_: None, crash])
        patch.setattr(Archiver, "_hold", lambda self, offsets: next(calls)())
    elif point == "half":
        whole = ArchiveDirectory.publish

        def half(self: ArchiveDirectory, record: Any) -> None:
            whole(self, record)
            if record.sequence:
                raise Crash

        patch.setattr(ArchiveDirectory, "publish", half)
    elif point == "publish":
        before = ArchiveDirectory.publish
        patch.setattr(ArchiveDirectory, "publish", lambda s, record: crash() if record.sequence else before(s, record))
    elif point == "forget_staged":
        forgets: Iterator[Any] = iter([lambda *_: None, crash])
        patch.setattr(ArchiveDirectory, "forget_staged", lambda self: next(forgets)())
    else:
        patch.setattr(ArchiveDirectory, point, crash)


def item(**fields: Any) -> Any:
    """A record of one name whatever its fields are, for names of records must not change."""
    return type("Item", (pulsar.schema.Record,), fields)


@pytest.mark.feature("F-SPK-10", "F-SPK-07")
def test_a_schema_that_grows(
    spark: SparkSession, standalone: StandaloneProcess, topic: str, options: dict[str, str], archive: Archive, path: str
) -> None:
    Before = item(number=pulsar.schema.Integer())
    After = item(number=pulsar.schema.Integer(), note=pulsar.schema.String(required_default=True))
    client = pulsar.Client(standalone.service_url)
    producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(Before))
    for number in range(3):
        producer.send(Before(number=number))
    assert archive(includes_open=True) == 3
    producer.close()
    producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(After))
    producer.send(After(number=3, note="new"))
    assert archive(includes_open=True) == 1
    producer.send(After(number=4, note="live"))
    client.close()
    frame = spark.read.format("pulsar").options(**options, history=path, metadata="none").load()
    found = sorted((row.number, row.note) for row in frame.collect())
    assert found == [(0, None), (1, None), (2, None), (3, "new"), (4, "live")]
    merged = spark.read.option("mergeSchema", "true").parquet(path)
    assert sorted(row.number for row in merged.where("note is null").collect()) == [0, 1, 2]


@pytest.mark.feature("F-PLAT-12")
def test_a_gap_between_history_and_topic_is_told_and_a_subscription_prevents_it(
    client: Client,
    admin: httpx.Client,
    options: dict[str, str],
    topic: str,
    archive: Archive,
    path: str,
    close_ledger: Callable[[], None],
) -> None:
    where = f"/{topic.replace('://', '/')}"
    publish(client, topic, 50)
    archive(includes_open=True, subscription="archive")
    publish(client, topic, 25, start=50)
    close_ledger()
    publish(client, topic, 25, start=75)
    close_ledger()
    publish(client, topic, 25, start=100)
    assert admin.post(f"{where}/trim").is_success
    assert read_batch({**options, "history": path}).numbers == list(range(125))
    assert admin.delete(f"{where}/subscription/archive").is_success
    assert admin.post(f"{where}/trim").is_success
    with pytest.raises(MessagesMissing, match="50 to 99"):
        read_batch({**options, "history": path})


def test_what_cannot_be_is_told(
    archive: Archive, options: dict[str, str], client: Client, topic: str, path: str
) -> None:
    publish(client, topic, 25)
    with ArchiveDirectory(path), pytest.raises(CannotStart, match="Another archiver"):
        archive()
    with pytest.raises(BadSetting, match="a directory"):
        log_of("s3://bucket/archive")
    with pytest.raises(BadSetting, match="narrow it with filters"):
        read_batch({**options, "history": path, "startingTime": "1"})
    with pytest.raises(BadSetting, match="is no archive"):
        read_batch({**options, "history": f"{path}-misspelt"})
    archive(includes_open=True)
    with pytest.raises(BadSetting, match="this is the archive of"):
        read_batch({**options, "topic": f"{topic}-other", "history": path, "schemaType": "bytes"})
