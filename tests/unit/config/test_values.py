# SPDX-License-Identifier: Apache-2.0
"""Kinds of values: what each takes, refuses and says that it allows."""

import re

import pytest

from magnetar.config.values import (
    KEEP_DEFAULT,
    Decimal,
    Flag,
    IntervalOfRate,
    MetadataUrl,
    OneOf,
    Password,
    Text,
    TextList,
    Value,
    Whole,
    value_of_type,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Whole(), "0", 0),
        (Whole(0, 65_535), "65535", 65_535),
        (Whole(1, 10, factor=60_000), "10", 600_000),
        (Whole(-1, 10, factor=60_000), "-1", -1),
        (Whole(1, 10, unlimited=0), "0", KEEP_DEFAULT),
        (Decimal(0.0, 1.0), "0.95", 0.95),
        (Decimal(), "1e3", 1000.0),
        (IntervalOfRate(), "0.1", 10_000),
        (IntervalOfRate(), "1.0", 1_000),
        (Flag(), "TRUE", True),
        (Flag(), "false", False),
        (Flag(inverted=True), "true", False),
        (OneOf((("partitioned", True), ("non-partitioned", False))), "Non-Partitioned", False),
        (Text(), "any text", "any text"),
        (TextList(), "a, b ,,c", ("a", "b", "c")),
        (Password(), "pä", "pä".encode()),
        (MetadataUrl(), "embedded:data/metadata", "embedded:data/metadata"),
        (MetadataUrl(), "memory:", "memory:"),
        (MetadataUrl(), "zk:a:2181,b:2181/pulsar", "zk:a:2181,b:2181/pulsar"),
        (MetadataUrl(), "a-1.example:2181,b:2181/pulsar", "zk:a-1.example:2181,b:2181/pulsar"),
        (MetadataUrl(), "zk+hierarchical://a:2181;b:2181/ledgers", "zk:a:2181,b:2181"),
        (MetadataUrl(), "zk+null://a:2181/root/ledgers/", "zk:a:2181/root"),
        (MetadataUrl(), "metadata-store:etcd:http://a:2379", "etcd:http://a:2379"),
    ],
)
def test_allowed(kind: Value, text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Whole(), "-1"),
        (Whole(0, 65_535), "65536"),
        (Whole(1, 10, factor=60_000), "11"),
        (Whole(), "1.5"),
        (Whole(), "1_000"),
        (Whole(), "+1"),
        (Whole(), "٣"),
        (Whole(), "99999999999999999999"),
        (Whole(), ""),
        (Decimal(0.0, 1.0), "1.01"),
        (Decimal(), "nan"),
        (Decimal(), "inf"),
        (Decimal(), "0,5"),
        (IntervalOfRate(), "0"),
        (Flag(), "yes"),
        (OneOf((("a", 1),)), "b"),
        (Text(3), "four"),
        (Text(), "two\nlines"),
        (TextList(2), "a,b,c"),
        (TextList(), " , "),
        (MetadataUrl(), "rocksdb:/data"),
        (MetadataUrl(), "host"),
        (MetadataUrl(), "http://host:80"),
    ],
)
def test_refused(kind: Value, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        kind.parse(text)
    assert kind.allowed


def test_every_type_of_field_has_a_kind() -> None:
    for annotation in (bool, int, float, str, tuple[str, ...]):
        assert value_of_type(annotation).allowed
    with pytest.raises(TypeError, match="no kind of setting"):
        value_of_type(dict)
