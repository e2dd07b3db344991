# SPDX-License-Identifier: Apache-2.0
"""A stream's offsets and limits, called as Spark calls them: what is found, what is waited for, what is lost."""

import json
import time
from collections.abc import Callable

import httpx
import pyarrow as pa
import pytest
from pyspark.sql import types

from magnetar.blocking import Client
from magnetar.spark.ranges import MessagesMissing
from magnetar.spark.rows import arrow_schema
from magnetar.spark.source import PulsarDataSource
from tests.spark.in_process import Read, Stream, read_batch
from tests.spark.test_source_reads import publish


def backlog(admin: httpx.Client, topic: str, subscription: str) -> int:
    stats = admin.get(f"/{topic.replace('://', '/')}/stats").raise_for_status().json()
    found: int = stats["subscriptions"][subscription]["msgBacklog"]
    return found


@pytest.mark.feature("F-SPK-09", "F-SPK-03")
def test_topics_that_match_later_are_found_and_held(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str]
) -> None:
    publish(client, f"{topic}-a", 50)
    pattern = {name: value for name, value in options.items() if name != "topic"}
    pattern |= {"topicsPattern": f"{topic.rsplit('/', 1)[1]}-.*", "subscription": "query"}
    stream = Stream(pattern)
    first = stream.next()
    assert first is not None
    assert first.numbers == list(range(50))
    assert stream.next() is None
    publish(client, f"{topic}-b", 25, start=50)
    publish(client, f"{topic}-a", 25, start=75)
    second = stream.next()
    assert second is not None
    assert second.numbers == list(range(50, 100))
    assert backlog(admin, f"{topic}-a", "query") == 0
    assert backlog(admin, f"{topic}-b", "query") == 0


@pytest.mark.feature("F-SPK-09")
def test_partitions_that_are_added_are_found(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str]
) -> None:
    path = f"/{topic.replace('://', '/')}/partitions"
    assert admin.put(path, content="1").is_success
    publish(client, topic, 50)
    stream = Stream(options)
    first = stream.next()
    assert first is not None
    assert len(first.rows) == 50
    assert admin.post(path, content="3").is_success
    publish(client, f"{topic}-partition-2", 25, start=50)
    second = stream.next()
    assert second is not None
    assert second.numbers == list(range(50, 75))
    assert sorted(stream.offset) == [f"{topic}-partition-{n}" for n in range(3)]


@pytest.mark.feature("F-SPK-02")
def test_a_batch_has_so_many_at_least_and_at_most(client: Client, topic: str, options: dict[str, str]) -> None:
    limits = {"minMessagesPerTrigger": "100", "maxMessagesPerTrigger": "130", "maxTriggerDelay": "1h"}
    publish(client, topic, 75)
    stream = Stream({**options, **limits})
    assert stream.next() is None, "75 are too few to begin with"
    publish(client, topic, 75, start=75)
    first = stream.next()
    assert first is not None
    assert first.numbers == list(range(130))
    assert stream.next() is None, "20 are left, and it has not waited for long"
    impatient = Stream({**options, **limits, "maxTriggerDelay": "1ms"})
    first = impatient.next()
    assert first is not None
    assert first.numbers == list(range(130))


def test_a_short_delay_ends_the_wait_for_more(
    client: Client, topic: str, options: dict[str, str], eventually: Callable[..., Read]
) -> None:
    publish(client, topic, 25)
    stream = Stream({**options, "minMessagesPerTrigger": "1000", "maxTriggerDelay": "5ms"})
    assert eventually(stream.next).numbers == list(range(25))


@pytest.mark.feature("F-SPK-04")
def test_a_stream_starts_at_a_time(
    client: Client, topic: str, options: dict[str, str], eventually: Callable[..., bool]
) -> None:
    publish(client, topic, 100)
    between_ms = int(time.time() * 1000) + 1
    eventually(lambda: time.time() * 1000 > between_ms + 1)
    publish(client, topic, 25, start=100)
    first = Stream({**options, "startingTime": str(between_ms)}).next()
    assert first is not None
    assert first.numbers == list(range(100, 125))


@pytest.mark.feature("F-SQL-03", "F-SPK-02")
def test_a_stream_takes_the_conditions_of_a_batch_as_options(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str]
) -> None:
    assert admin.put(f"/{topic.replace('://', '/')}/partitions", content="2").is_success
    publish(client, topic, 100)
    keyed = Stream({**options, "keys": "k3"}).next()
    assert keyed is not None
    assert keyed.numbers == list(range(3, 100, 5))
    assert (keyed.counts.messages, keyed.counts.rows) == (100, 20)
    halves = [Stream({**options, "partitions": str(number), "metadata": "all"}).next() for number in range(2)]
    assert [{row["__partition"] for row in half.rows} for half in halves if half is not None] == [{0}, {1}]
    assert sorted(number for half in halves if half is not None for number in half.numbers) == list(range(100))


@pytest.mark.feature("F-SPK-02", "F-SQL-07")
def test_a_stream_catches_up_from_bookies_and_goes_on_with_the_broker(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str], metadata_url: str
) -> None:
    publish(client, topic, 100)
    assert admin.put(f"/{topic.replace('://', '/')}/unload").is_success
    publish(client, topic, 25, start=100)
    stream = Stream({**options, "metadata.url": metadata_url})
    end = stream.reader.latestOffset(stream.offset, stream.reader.getDefaultReadLimit())
    assert [part.span.via for part in stream.reader.partitions(stream.offset, end)] == ["bookies", "broker"]
    first = stream.next()
    assert first is not None
    assert first.numbers == list(range(125))
    assert stream.offset == end


@pytest.mark.feature("F-SPK-02", "F-SPK-03")
def test_what_retention_took_away_fails_the_query_or_is_skipped_and_counted(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str]
) -> None:
    publish(client, topic, 100)
    stream = Stream(options)
    skipping = Stream({**options, "failOnDataLoss": "false"})
    assert admin.put(f"/{topic.replace('://', '/')}/unload").is_success
    publish(client, topic, 25, start=100)
    assert admin.delete(f"/{topic.replace('://', '/')}/truncate").is_success
    with pytest.raises(MessagesMissing, match="messages 0 to 99"):
        stream.next()
    read = skipping.next()
    assert read is not None
    assert read.numbers == list(range(100, 125))
    assert read.counts.skipped == 100


def ledgers(admin: httpx.Client, topic: str) -> int:
    return len(admin.get(f"/{topic.replace('://', '/')}/internalStats").raise_for_status().json()["ledgers"])


@pytest.mark.feature("F-SPK-03")
def test_the_cursor_of_a_query_shows_its_lag_and_holds_its_data(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str], eventually: Callable[..., bool]
) -> None:
    """Nothing else does: without it a closed ledger goes at once."""
    path = f"/{topic.replace('://', '/')}"
    publish(client, topic, 100)
    stream = Stream({**options, "subscription": "query", "maxMessagesPerTrigger": "75"})
    # Backlog counts entries, of 25 messages here.
    assert backlog(admin, topic, "query") == 4
    assert stream.next() is not None
    assert backlog(admin, topic, "query") == 1
    # A second query does not disturb the first one, and leaves nothing behind.
    assert read_batch(options).numbers == list(range(100))
    stats = admin.get(f"{path}/stats").json()
    assert list(stats["subscriptions"]) == ["query"]
    assert admin.put(f"{path}/unload").is_success
    publish(client, topic, 25, start=100)
    assert admin.post(f"{path}/trim").is_success
    assert ledgers(admin, topic) == 2
    last = stream.next()
    assert last is not None
    assert last.numbers == list(range(75, 125))
    assert backlog(admin, topic, "query") == 0
    # Once the cursor's place is saved, what lies before it goes.
    eventually(lambda: admin.post(f"{path}/trim").is_success and ledgers(admin, topic) == 1)
    with pytest.raises(MessagesMissing, match="messages 0 to 99"):
        read_batch({**options, "startingOffsets": json.dumps({topic: 0})})


@pytest.mark.feature("F-SPK-03")
def test_the_cursor_is_where_the_checkpoint_is_when_a_query_ends(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str]
) -> None:
    """F193: Spark says that a batch is committed when the next one begins, and asks for that one's end before."""
    publish(client, topic, 50)
    stream = Stream({**options, "subscription": "query"})
    end = stream.reader.latestOffset(stream.offset, stream.reader.getDefaultReadLimit())
    assert stream.read(stream.offset, end).numbers == list(range(50))
    assert backlog(admin, topic, "query") == 2, "planned and read is not committed"
    # The driver dies here: the next one has the checkpoint of before, and all of it is still there.
    assert admin.post(f"/{topic.replace('://', '/')}/trim").is_success
    stream = Stream({**options, "subscription": "query"})
    assert backlog(admin, topic, "query") == 2
    assert stream.read(stream.offset, end).numbers == list(range(50))
    assert stream.reader.latestOffset(end, stream.reader.getDefaultReadLimit()) == end
    assert backlog(admin, topic, "query") == 0


FIRST = types.StructType([types.StructField("name", types.StringType()), types.StructField("total", types.LongType())])
SECOND = types.StructType([*FIRST.fields, types.StructField("country", types.StringType())])


def write(options: dict[str, str], columns: types.StructType, rows: list[dict[str, object]], form: str) -> None:
    writer = PulsarDataSource({**options, "schemaType": form}).writer(columns, False)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns))]))])


@pytest.mark.feature("F-SPK-07", "F-SCH-10")
@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_schema_may_grow_while_a_stream_runs(options: dict[str, str], form: str) -> None:
    write(options, FIRST, [{"name": "a", "total": 1}], form)
    stream = Stream({**options, "metadata": "none"})
    first = stream.next()
    assert first is not None
    assert first.rows == [{"name": "a", "total": 1}]
    write(options, SECOND, [{"name": "b", "total": 2, "country": "no"}], form)
    write(options, FIRST, [{"name": "c", "total": 3}], form)
    second = stream.next()
    assert second is not None
    assert second.rows == [{"name": "b", "total": 2}, {"name": "c", "total": 3}]
    # A query that starts now has the new column, for old messages too.
    assert read_batch({**options, "metadata": "none"}).rows == [
        {"name": "a", "total": 1, "country": None},
        {"name": "b", "total": 2, "country": "no"},
        {"name": "c", "total": 3, "country": None},
    ]
