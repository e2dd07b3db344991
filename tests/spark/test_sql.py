# SPDX-License-Identifier: Apache-2.0
"""Topics as tables: names, metadata under Pulsar SQL's names, and how little a statement reads."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pulsar
import pytest
from pyspark.sql import SparkSession

from magnetar.blocking import Client
from magnetar.errors import MagnetarError, TopicNotFound
from magnetar.spark.sentences import QueryFailed
from magnetar.spark.sql.jvm import rows_read
from magnetar.spark.sql.topic_sql import TopicSql
from tests.processes import StandaloneProcess
from tests.spark.in_process import read_batch
from tests.spark.test_source_reads import BATCH, publish


class Order(pulsar.schema.Record):  # type: ignore[misc]
    country = pulsar.schema.String()
    amount = pulsar.schema.Integer()
    note = pulsar.schema.String()


@pytest.fixture(scope="module")
def sql(spark: SparkSession, standalone: StandaloneProcess) -> Iterator[TopicSql]:
    yield TopicSql(spark, {"service.url": standalone.service_url})
    spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")


@pytest.fixture(scope="module")
def orders(standalone: StandaloneProcess, admin: httpx.Client) -> Iterator[list[pulsar.Message]]:
    """Forty orders in `shop/sales`, sent and read again by Apache Pulsar's own client."""
    clusters = admin.get("/clusters").json()
    assert admin.put("/tenants/shop", json={"allowedClusters": clusters, "adminRoles": []}).is_success
    assert admin.put("/namespaces/shop/sales").is_success
    topic = "persistent://shop/sales/orders"
    assert admin.put(f"/{topic.replace('://', '/')}/partitions", content="2").is_success
    client = pulsar.Client(standalone.service_url, logger=logging.getLogger("official"))
    consumer = client.subscribe(topic, "check", schema=pulsar.schema.JsonSchema(Order))
    producer = client.create_producer(topic, schema=pulsar.schema.JsonSchema(Order), producer_name="shop")
    for number in range(40):
        producer.send(
            Order(country="CH" if number % 4 else "AT", amount=number, note="n" * 50),
            partition_key=f"key {number % 16}",
            properties={"n": str(number)},
            event_timestamp=1_700_000_000_000 + number,
        )
    yield [consumer.receive(10_000) for _ in range(40)]
    client.close()


def ask(sql: TopicSql, text: str) -> list[dict[str, Any]]:
    names, rows = sql.rows(text)
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.feature("F-SQL-01", "D-24")
@pytest.mark.parametrize(
    "table",
    ['"shop/sales".orders', "shop.sales.orders", "`persistent://shop/sales/orders`"],
)
def test_a_topic_has_a_name_in_every_form(sql: TopicSql, orders: list[pulsar.Message], table: str) -> None:
    found = ask(sql, f"select country, sum(amount) as total from {table} group by country order by country")
    assert found == [
        {"country": "AT", "total": sum(range(0, 40, 4))},
        {"country": "CH", "total": sum(n for n in range(40) if n % 4)},
    ]
    assert sql.tables[0].options["columns"] == "country,amount"


@pytest.mark.feature("F-SQL-01")
def test_joins_subqueries_and_common_expressions_over_topics(sql: TopicSql, orders: list[pulsar.Message]) -> None:
    found = ask(
        sql,
        "with large as (select amount, country from shop.sales.orders where amount >= 38) "
        "select large.amount, count(*) as fellows from large join shop.sales.orders as o on o.country = large.country "
        "where o.amount in (select amount from shop.sales.orders where amount < 3) group by large.amount order by 1",
    )
    assert found == [{"amount": 38, "fellows": 2}, {"amount": 39, "fellows": 2}]
    assert ask(sql, "select orders.amount from shop.sales.orders where orders.amount = 7") == [{"amount": 7}]


@pytest.mark.feature("F-SQL-02")
def test_metadata_under_the_names_of_pulsar_sql_is_what_the_official_client_saw(
    sql: TopicSql, orders: list[pulsar.Message]
) -> None:
    found = ask(
        sql,
        "select amount, __partition__, __publish_time__, __event_time__, __message_id__, __key__, __sequence_id__, "
        "__producer_name__, __properties__ from shop.sales.orders",
    )
    rows = {row["amount"]: row for row in found}
    assert len(rows) == 40
    for message in orders:
        row = rows[message.value().amount]
        assert row["__partition__"] == message.message_id().partition()
        assert (
            round(row["__publish_time__"].timestamp() * 1000) % 86_400_000 == message.publish_timestamp() % 86_400_000
        )
        assert row["__key__"] == message.partition_key()
        assert json.loads(row["__properties__"]) == message.properties()
        assert row["__producer_name__"].startswith("shop")
        assert row["__event_time__"].microsecond // 1000 == message.event_timestamp() % 1000
        identity = pulsar.MessageId.deserialize(bytes(row["__message_id__"]))
        assert (identity.ledger_id(), identity.entry_id()) == (
            message.message_id().ledger_id(),
            message.message_id().entry_id(),
        )
    assert sorted({row["__sequence_id__"] for row in found}) == list(range(len({r["__sequence_id__"] for r in found})))


@pytest.mark.feature("F-SQL-03")
def test_a_query_of_one_partition_reads_one(sql: TopicSql, orders: list[pulsar.Message]) -> None:
    wanted = [one.value().amount for one in orders if one.message_id().partition() == 1]
    frame = sql.frame("select amount from shop.sales.orders where __partition__ = 1")
    assert sorted(row.amount for row in frame.collect()) == sorted(wanted)
    assert rows_read(frame) == len(wanted) < 40


@pytest.mark.feature("F-SQL-04", "F-SPK-08")
def test_a_key_a_number_and_a_time_are_left_to_the_source(sql: TopicSql, client: Client, topic: str) -> None:
    publish(client, topic, 500)
    table = '"public/default".' + f"`{topic.rpartition('/')[2]}`"
    frame = sql.frame(f"select value from {table} where __key__ = 'k3' and length(value) > 0")
    assert sorted(int(row.value) for row in frame.collect()) == list(range(3, 500, 5))
    assert sql.tables[0].options["keys"] == "k3"
    assert rows_read(frame) == 100
    counted = read_batch(sql.tables[0].options)
    assert (counted.counts.rows, counted.counts.messages) == (100, 500)
    frame = sql.frame(f"select value from {table} where __index between 300 and 309")
    assert sorted(int(row.value) for row in frame.collect()) == list(range(300, 310))
    assert rows_read(frame) <= 2 * BATCH
    frame = sql.frame(f"select count(*) as n from {table} where __publish_time__ > timestamp '2100-01-01'")
    assert [row.n for row in frame.collect()] == [0]
    assert rows_read(frame) == 0
    assert [row.n for row in sql.frame(f"select count(*) as n from {table}").collect()] == [500]
    assert sql.tables[0].options["columns"] == "__partition"


@pytest.mark.feature("F-SQL-04")
def test_a_limit_reads_as_many_messages(sql: TopicSql, client: Client, topic: str) -> None:
    publish(client, topic, 500)
    table = f"`{topic.rpartition('/')[2]}`"
    assert len(ask(sql, f"select value, __index from {table} limit 7")) == 7
    assert sql.narrowed_to == 7
    counted = read_batch(sql.tables[0].options)
    assert counted.counts.messages == 7
    assert counted.counts.entries <= 4 < 500 // BATCH
    # A limit behind a filter or an order says nothing about where its rows are.
    assert len(ask(sql, f"select value from {table} where __index > 300 limit 7")) == 7
    assert sql.narrowed_to is None
    assert len(ask(sql, f"select value from {table} limit 600")) == 500


def test_a_limit_over_messages_that_are_no_rows_reads_on(sql: TopicSql, client: Client, topic: str) -> None:
    with client.create_producer(topic, batching_enabled=False, chunking_enabled=True) as producer:
        producer.send(bytes(12 * 1024 * 1024))
        producer.send(b"second")
        producer.send(b"third")
    assert len(ask(sql, f"select length(value) as n from `{topic.rpartition('/')[2]}` limit 3")) == 3


@pytest.mark.feature("F-SQL-01")
@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("selec 1", QueryFailed, "Syntax error at or near 'selec'"),
        ("select nothing from shop.sales.orders", QueryFailed, "`nothing` cannot be resolved"),
        ("select 1 from shop.sales.absent", TopicNotFound, "There is no topic persistent://shop/sales/absent"),
        ("select 1 from a.b.c.d", MagnetarError, "a.b.c.d is no topic"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    sql: TopicSql, orders: list[pulsar.Message], text: str, kind: type[MagnetarError], said: str
) -> None:
    with pytest.raises(kind) as told:
        sql.rows(text)
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert "absent" not in " ".join(sql.topics.listed("shop/sales"))


def test_views_and_files_keep_their_names(sql: TopicSql, orders: list[pulsar.Message]) -> None:
    assert (
        ask(sql, "create or replace temporary view dear as select amount from shop.sales.orders where amount > 37")
        == []
    )
    assert [row["amount"] for row in ask(sql, "select * from dear order by 1")] == [38, 39]
