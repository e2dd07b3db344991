# SPDX-License-Identifier: Apache-2.0
"""One query as a process of its own, to be killed: `python -m tests.spark.driver OPTIONS`, where OPTIONS are JSON.

From topic to topic, with a shuffle that keeps no order and a column that is different every time it is computed. With
`straggler` the first task that comes to it waits until it is given up.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from magnetar import spark as magnetar_spark
from tests.spark import crash_points
from tests.spark.loopback_cluster import SHORT_LIVED_JVM
from tests.spark.queries import run_to_end

LINGER_S = 300
SUBSCRIPTION = "driver"


def frame_of(source: DataFrame, parts: int) -> DataFrame:
    return source.selectExpr(
        "value", "map('chance', cast(rand() as string)) as __messageProperties", "cast(__key as string) as __key"
    ).repartition(parts)


def lingering(frame: DataFrame, mark: str) -> DataFrame:
    """The first task that has rows stays, and is faster to be run again than to be waited for."""

    def linger(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            try:
                Path(mark).touch(exist_ok=False)
            except FileExistsError:
                yield batch
            else:
                until_s = time.monotonic() + LINGER_S
                while time.monotonic() < until_s:  # until Spark ends it
                    time.sleep(0.1)
                Path(mark).write_text("nobody ran the task again")
                yield batch

    return frame.mapInArrow(linger, frame.schema)


def main() -> None:
    given = json.loads(sys.argv[1])
    os.environ[crash_points.DRIVER] = str(os.getpgid(0))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = magnetar_spark.session(
        "driver",
        master=given["master"],
        spark_ui_enabled="false",
        spark_sql_shuffle_partitions=str(given["parts"]),
        spark_driver_bindAddress="127.0.0.1",
        spark_driver_memory="512m",
        spark_driver_extraJavaOptions=SHORT_LIVED_JVM,
        spark_python_authenticate_socketTimeout="120s",
        **given.get("settings", {}),
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(crash_points.CrashingDataSource)
    options = {"service.url": given["url"]}
    source = {"topic": given["topic"], "startingOffsets": "earliest", "maxMessagesPerTrigger": "300"}
    source["subscription"] = SUBSCRIPTION
    frame = spark.readStream.format("pulsar-crashing").options(**options, **source).load()
    rows = frame_of(frame, given["parts"])
    writer = (lingering(rows, given["straggler"]) if "straggler" in given else rows).writeStream
    writer = writer.format("pulsar-crashing")
    run_to_end(writer.options(**options, topic=given["out"], checkpointLocation=given["checkpoint"]))
    spark.stop()


if __name__ == "__main__":
    main()
