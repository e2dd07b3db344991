# SPDX-License-Identifier: Apache-2.0
"""The Spark source and sink beside a plain Parquet scan: rows a second on local[2], messages batched by the producer.

    python -m benchmarks.spark [--messages N] [--sizes 100,1024]

The broker, Spark's JVM and its Python workers share this machine's cores. Every read is made twice and the second
counts: the session is warm then. The bar is what Spark's own Kafka source gave on two cores from a local Kafka: half of
it is the floor.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pulsar
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.results import Measurement, report
from magnetar import spark as magnetar_spark
from tests.processes import StandaloneProcess

# Rows a second of the Kafka source, warm, by payload size: batch read, availableNow.
KAFKA = {100: (870_000, 680_000), 1024: (341_000, 300_000)}
SEND_BATCH_MESSAGES = 1_000
SEND_BATCH_BYTES = 512 * 1024
SINK_SHARE = 4


def fill(url: str, topic: str, messages: int, size: int) -> None:
    """Batches as a producer with the usual settings makes them; every payload is different."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=SEND_BATCH_MESSAGES,
        batching_max_allowed_size_in_bytes=SEND_BATCH_BYTES,
        batching_max_publish_delay_ms=50,
        block_if_queue_full=True,
        max_pending_messages=50_000,
    )
    rest = os.urandom(size - 10)
    for number in range(messages):
        producer.send_async(b"%010d" % number + rest, None)
    producer.flush()
    client.close()


def timed(run: Callable[[], object]) -> float:
    """Seconds of the second run."""
    run()
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


class Bench:
    def __init__(self, spark: SparkSession, standalone: StandaloneProcess, scratch: Path) -> None:
        self.spark = spark
        self.standalone = standalone
        self.scratch = scratch
        self._checkpoints = 0

    def options(self, topic: str, extra: dict[str, str]) -> dict[str, str]:
        return {"service.url": self.standalone.service_url, "topic": topic, **extra}

    def batch(self, topic: str, **extra: str) -> DataFrame:
        return self.spark.read.format("pulsar").options(**self.options(topic, extra)).load()

    def direct(self, topic: str) -> DataFrame:
        """From the bookie, past the broker: the ledger is closed first."""
        path = f"{self.standalone.web_url}/admin/v2/{topic.replace('://', '/')}/unload"
        httpx.put(path, timeout=60).raise_for_status()
        url = json.loads((self.standalone.directory / "ready.json").read_text())["metadataUrl"]
        return self.batch(topic, metadata="none", **{"metadata.url": url})

    def consume(self, frame: DataFrame) -> None:
        """Every payload crosses into Spark's own rows."""
        frame.agg(f.count("*"), f.sum(f.length("value"))).collect()

    def available_now(self, topic: str) -> None:
        self._checkpoints += 1
        frame = self.spark.readStream.format("pulsar").options(**self.options(topic, {"startingOffsets": "earliest"}))
        query = (
            frame.load()
            .select(f.length("value").alias("length"))
            .writeStream.format("noop")
            .option("checkpointLocation", str(self.scratch / f"checkpoint-{self._checkpoints}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def parquet(self, topic: str) -> DataFrame:
        path = str(self.scratch / "parquet" / topic.rsplit("/", 1)[1])
        if not Path(path).exists():
            self.batch(topic, columns="value").write.parquet(path)
        return self.spark.read.parquet(path)

    def sink(self, messages: int, size: int) -> float:
        frame = self.spark.range(0, messages, numPartitions=2).selectExpr(
            f"cast(rpad(cast(id as string), {size}, 'x') as binary) as value"
        )
        frame.write.format("noop").mode("overwrite").save()
        began = time.perf_counter()
        target = f"persistent://public/default/sink-{size}-{time.time_ns()}"
        frame.write.format("pulsar").mode("append").options(**self.options(target, {})).save()
        return time.perf_counter() - began


def floor(kafka: int) -> str:
    return f"> {kafka // 2:,}, Kafka {kafka:,}" if kafka else ""


def measure(bench: Bench, size: int, messages: int) -> list[Measurement]:
    topic = f"persistent://public/default/bench-{size}"
    began = time.perf_counter()
    fill(bench.standalone.service_url, topic, messages, size)
    print(f"filled {messages:,} of {size} B in {time.perf_counter() - began:.1f} s", flush=True)
    kafka_batch, kafka_stream = KAFKA.get(size, (0, 0))
    reads: list[tuple[str, Callable[[], object], str]] = [
        ("batch, value alone", lambda: bench.consume(bench.batch(topic, metadata="none")), floor(kafka_batch)),
        ("batch, basic metadata", lambda: bench.consume(bench.batch(topic)), floor(kafka_batch)),
        (
            "batch, every column written",
            lambda: bench.batch(topic).write.format("noop").mode("overwrite").save(),
            floor(kafka_batch),
        ),
        ("batch, from bookies", lambda: bench.consume(bench.direct(topic)), floor(kafka_batch)),
        ("availableNow", lambda: bench.available_now(topic), floor(kafka_stream)),
        ("Parquet scan", lambda: bench.consume(bench.parquet(topic)), "the limit"),
    ]
    found: list[Measurement] = []
    for name, run, aim in reads:
        found.append(Measurement(f"{size} B {name}", f"{messages / timed(run):,.0f} rows/s", aim))
        print(*found[-1][:3], flush=True)
    written = messages // SINK_SHARE
    found.append(Measurement(f"{size} B sink, exactly once", f"{written / bench.sink(written, size):,.0f} rows/s"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--sizes", default="100,1024")
    arguments = parser.parse_args()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        config = directory / "broker.conf"
        config.write_text("brokerDeduplicationEnabled=true\n")
        doors = ("--bookie-port", "0", "--metadata-port", "0")
        with StandaloneProcess(directory / "run", "--config", str(config), *doors) as standalone:
            spark = magnetar_spark.session(
                "bench", master="local[2]", spark_ui_enabled="false", spark_driver_bindAddress="127.0.0.1"
            )
            spark.sparkContext.setLogLevel("ERROR")
            bench = Bench(spark, standalone, directory)
            sizes = [int(text) for text in arguments.sizes.split(",")]
            measurements = [one for size in sizes for one in measure(bench, size, arguments.messages)]
            spark.stop()
    report("spark", measurements)


if __name__ == "__main__":
    main()
