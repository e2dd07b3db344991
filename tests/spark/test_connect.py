# SPDX-License-Identifier: Apache-2.0
"""Spark's own client of Spark Connect, with no JVM of its own: topics are read, streamed and written through a server.

It needs packages that nothing else does: `make spark-lines` has them, and runs this with each of the lines of Spark.
"""

from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from magnetar import spark as magnetar_spark
from magnetar.blocking import Client
from tests.spark.queries import LIMIT_S
from tests.spark.test_batch_source import publish

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

pytestmark = pytest.mark.skipif(
    find_spec("grpc_status") is None, reason="Spark's client needs grpcio-status: `make spark-lines` runs it"
)


@pytest.fixture
def joined(spark: SparkSession) -> "Iterator[ConnectSession]":
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    made = ConnectSession.builder.remote(f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}").create()
    magnetar_spark.register(made)  # type: ignore[arg-type]
    yield made
    made.client.close()


@pytest.mark.feature("F-SPK-01", "F-SQL-01")
def test_a_client_without_a_jvm_reads_streams_and_writes(
    joined: "ConnectSession", client: Client, topic: str, options: dict[str, str], checkpoint: str
) -> None:
    publish(client, topic, 300)
    frame = joined.read.format("pulsar").options(**options, metadata="all").load()
    assert frame.count() == 300
    few = frame.where("__index between 100 and 109").select("value").collect()
    assert sorted(int(bytes(row.value)) for row in few) == list(range(100, 110))
    for _ in range(2):
        written = {**options, "topic": f"{topic}-out", "writeId": topic.rpartition("/")[2][-60:]}
        frame.select("value", "__key").write.format("pulsar").mode("append").options(**written).save()
    rows = joined.readStream.format("pulsar").options(**options, startingOffsets="earliest").load().select("value")
    writer = rows.writeStream.format("pulsar").options(**{**options, "topic": f"{topic}-streamed"})
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT_S)
    for copy in (f"{topic}-out", f"{topic}-streamed"):
        found = joined.read.format("pulsar").options(**{**options, "topic": copy}).load().select("value").collect()
        assert Counter(int(bytes(row.value)) for row in found) == Counter(range(300))
