# SPDX-License-Identifier: Apache-2.0
"""A topic read from its bookies while no broker runs."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from magnetar.blocking import Client
from tests.cluster import Cluster
from tests.spark.test_batch_source import numbers, publish

TOPIC = "persistent://public/default/stored"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), bookies=2) as made:
        yield made


@pytest.mark.feature("F-SQL-07", "F-SPK-04")
def test_closed_ledgers_are_read_with_the_broker_stopped(spark: SparkSession, cluster: Cluster) -> None:
    with Client(cluster.service_url) as client:
        publish(client, TOPIC, 3_000)
    assert cluster.broker is not None
    cluster.broker.stop()
    frame = (
        spark.read.format("pulsar")
        .option("service.url", cluster.service_url)
        .option("metadata.url", cluster.metadata_url)
        .option("read.via", "bookies")
        .option("schemaType", "bytes")
        .option("topic", TOPIC)
        .option("metadata", "all")
        .option("messagesPerTaskMin", "500")
        .load()
    )
    assert frame.rdd.getNumPartitions() > 1
    assert numbers(frame) == list(range(3_000))
    assert numbers(frame.where("__index between 100 and 109")) == list(range(100, 110))
