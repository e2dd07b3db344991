# SPDX-License-Identifier: Apache-2.0
"""Which topic a table's name means; statements about what there is; rows as text."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadName, BadSetting
from magnetar.spark.sentences import QueryFailed, failed, sentence_of
from magnetar.spark.sql.results import csv_text, json_text, table_text
from magnetar.spark.sql.statements import About, Asked, asked, changes_a_table, complete
from magnetar.spark.sql.table_names import HIDDEN, HIDDEN_FROM, is_elsewhere, mentioned, namespace_of, topic_of


@pytest.mark.parametrize(
    ("parts", "topic"),
    [
        (("orders",), "persistent://shop/sales/orders"),
        (("stock", "orders"), "persistent://shop/stock/orders"),
        (("a", "b", "orders"), "persistent://a/b/orders"),
        (("a/b", "my-topic"), "persistent://a/b/my-topic"),
        (("persistent://a/b/c",), "persistent://a/b/c"),
        (("a/b/c",), "persistent://a/b/c"),
    ],
)
def test_every_form_of_a_name(parts: tuple[str, ...], topic: str) -> None:
    assert topic_of(parts, "shop/sales") == topic


def test_names_that_are_no_topics() -> None:
    with pytest.raises(BadName, match="is no topic"):
        topic_of(("a", "b", "c", "d"))
    assert is_elsewhere(("parquet", "/data"))
    assert is_elsewhere(("global_temp", "a/b/c"))
    assert not is_elsewhere(("a/b", "json"))


def test_namespaces() -> None:
    assert namespace_of('"a/b"') == namespace_of("a.b") == namespace_of("a/b") == "a/b"
    assert namespace_of("b", "shop/sales") == "shop/b"


def test_hidden_columns_come_from_one_column_each() -> None:
    assert HIDDEN_FROM["__key__"] == "__key"
    assert HIDDEN_FROM["__properties__"] == "__messageProperties"
    assert set(HIDDEN_FROM) == set(HIDDEN)
    assert mentioned("select __key__, x.__index from a where `__publishTime` > 1") == {
        "__key__",
        "__index",
        "__publishTime",
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("show databases", Asked(About.NAMESPACES)),
        ("SHOW TABLES;", Asked(About.TOPICS)),
        ('show tables in "a/b"', Asked(About.TOPICS, ("a/b",))),
        ("show topics from a.b", Asked(About.TOPICS, ("a", "b"))),
        ("describe a.b.orders", Asked(About.COLUMNS, ("a", "b", "orders"))),
        ('desc "my-topic"', Asked(About.COLUMNS, ("my-topic",))),
        ("use shop/sales", Asked(About.USE, ("shop/sales",))),
        ("select 1", None),
        ("show functions", None),
    ],
)
def test_statements_about_what_there_is(text: str, found: Asked | None) -> None:
    assert asked(text) == found


def test_a_semicolon_in_quotes_ends_nothing() -> None:
    assert complete("select ';' from \"a;b\"; select 2;\n select") == (
        ["select ';' from \"a;b\"", "select 2"],
        "\n select",
    )


@settings(max_examples=200)
@given(st.lists(st.text(alphabet="ab '\"`\n", max_size=8)))
def test_nothing_of_a_statement_is_lost(parts: list[str]) -> None:
    text = ";".join(parts)
    statements, rest = complete(text)
    assert "".join("".join((*statements, rest)).replace(";", "").split()) == "".join(text.replace(";", "").split())


ROW = (1, None, b"text", b"\xff", {"a": 1}, datetime(2026, 1, 2, 3, tzinfo=UTC), Decimal("1.50"), True)
NAMES = ["n", "nothing", "text", "bytes", "map", "time", "exact", "flag"]


def test_rows_as_text() -> None:
    table = "".join(table_text(NAMES, [ROW]))
    assert "1 | null    | text | ff    | {" in table
    assert table.endswith("(1 row)\n")
    assert "".join(table_text(["a"], [])) == "a\n-\n(0 rows)\n"
    assert "".join(csv_text(NAMES, [ROW])).splitlines() == [
        "n,nothing,text,bytes,map,time,exact,flag",
        '1,,text,ff,"{""a"": 1}",2026-01-02 03:00:00+00:00,1.50,true',
    ]
    assert "".join(json_text(NAMES[:4], [ROW[:4]])) == '{"n": 1, "nothing": null, "text": "text", "bytes": "/w=="}\n'


def test_what_would_steer_a_terminal_is_written_out() -> None:
    assert "".join(table_text(["a"], [("x\ty\x1b[2J",)])).splitlines()[2] == "x\\ty\\x1b[2J"
    message_id = b"\x08\x00\x10\x01"
    assert "".join(table_text(["a"], [(message_id,)])).splitlines()[2] == "08001001"
    assert "".join(json_text(["a"], [(message_id,)])) == '{"a": "CAAQAQ=="}\n'


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("insert into t values (1)", True),
        (" DROP TABLE t", True),
        ("delete from t", True),
        ("insert overwrite directory '/x' select 1", False),
        ("select 'insert into t'", False),
        ("create temp view v as select 1", False),
    ],
)
def test_statements_that_would_change_a_topic_are_known(text: str, changes: bool) -> None:
    assert changes_a_table(text) is changes


def test_a_long_table_comes_in_pages() -> None:
    lines = "".join(table_text(["n"], ((number,) for number in range(1_200)))).splitlines()
    assert lines[-1] == "(1200 rows)"
    assert lines.count("n") + sum(line.startswith("n ") for line in lines) == 3


def test_one_sentence_of_what_spark_says() -> None:
    spark_said = "[UNRESOLVED_COLUMN] A column `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Project"
    assert sentence_of(Exception(spark_said)) == "A column `x` cannot be resolved. line 1 pos 7"
    worker = (
        "Job aborted\n  File x\nmagnetar.spark.ranges.MessagesMissing: t: messages 1 to 2 are not there\n\tat org.x"
    )
    assert sentence_of(Exception(worker)) == "t: messages 1 to 2 are not there"
    assert sentence_of(Exception("Boom\nTraceback:\nValueError: no number\n")) == "ValueError: no number"
    told = BadSetting("said")
    assert failed(told) is told
    assert isinstance(failed(ValueError("x")), QueryFailed)
