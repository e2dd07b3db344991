# SPDX-License-Identifier: Apache-2.0
"""The Spark source and sink on local[2], beside a plain Parquet scan and, with --peers, Spark's own Kafka source.

    python -m benchmarks.spark [--peers] [--messages N] [--sizes 100,1024] [--rounds N]

Messages are batched by the producer, and Kafka holds the same payloads. The brokers, Spark's JVM and its Python workers
share this machine's cores; CPU is that of all of them together. A first round warms the session and does not count;
in every other one the sides take turns, and medians are kept. What is not measured again stays as it was.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx
import psutil
import pulsar
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.figures import LESS, Figure
from benchmarks.kafka_peer import Kafka, KafkaServer
from benchmarks.peers import Missing
from benchmarks.results import Run, Side
from benchmarks.servers import Magnetar, family, machine_words
from magnetar import spark as magnetar_spark
from tests.processes import StandaloneProcess

SEND_BATCH_MESSAGES = 1_000
SEND_BATCH_BYTES = 512 * 1024
SINK_SHARE = 4
STARTS_MAX = 10
AIM = "0.5× → 1×"
CLAIM_MESSAGES = 1_000_000
"""With fewer a read is over in tenths of a second, which is no more than quick scale."""


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


class Taken(NamedTuple):
    """By the clock, and by all processes of the run together."""

    seconds: float
    cpu_s: float


def _cpu_s() -> float:
    """Of this process and all that it has started, those that have ended included."""
    total = 0.0
    for process in family(os.getpid()):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def timed(run: Callable[[], object]) -> Taken:
    for _ in range(STARTS_MAX):
        cpu_s, began = _cpu_s(), time.perf_counter()
        try:
            run()
        except StreamingQueryException as error:
            # Spark waits ten seconds for a stream's Python process, which a busy machine may not have for it.
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return Taken(time.perf_counter() - began, _cpu_s() - cpu_s)
    raise TimeoutError("Spark's Python process never came up")


class Reads:
    """One side: the same questions to one data source."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self.spark = spark
        self._scratch = scratch
        self._checkpoints: Iterator[Path] = (scratch / f"checkpoint-{number}" for number in range(10**6))

    def consume(self, frame: DataFrame) -> None:
        """Every payload crosses into Spark's own rows."""
        frame.agg(f.count("*"), f.sum(f.length("value"))).collect()

    def write_all(self, frame: DataFrame) -> None:
        """Every column of every row is made."""
        frame.write.format("noop").mode("overwrite").save()

    def available_now(self, frame: DataFrame) -> None:
        query = (
            frame.select(f.length("value").alias("length"))
            .writeStream.format("noop")
            .option("checkpointLocation", str(next(self._checkpoints)))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


class PulsarReads(Reads):
    def __init__(self, spark: SparkSession, scratch: Path, standalone: StandaloneProcess) -> None:
        super().__init__(spark, scratch / "magnetar")
        self.standalone = standalone

    def options(self, topic: str, **more: str) -> dict[str, str]:
        name = f"persistent://public/default/{topic}"
        return {"service.url": self.standalone.service_url, "topic": name, **more}

    def batch(self, topic: str, **more: str) -> DataFrame:
        return self.spark.read.format("pulsar").options(**self.options(topic, **more)).load()

    def stream(self, topic: str, **more: str) -> DataFrame:
        options = self.options(topic, startingOffsets="earliest", **more)
        return self.spark.readStream.format("pulsar").options(**options).load()

    def close_ledger(self, topic: str) -> None:
        path = f"{self.standalone.web_url}/admin/v2/persistent/public/default/{topic}/unload"
        httpx.put(path, timeout=60).raise_for_status()

    def direct(self, topic: str) -> DataFrame:
        """From the bookie, past the broker."""
        url = json.loads((self.standalone.directory / "ready.json").read_text())["metadataUrl"]
        return self.batch(topic, columns="value", **{"metadata.url": url})

    def parquet(self, topic: str) -> DataFrame:
        path = str(self._scratch / "parquet" / topic)
        if not Path(path).exists():
            self.batch(topic, columns="value").write.parquet(path)
        return self.spark.read.parquet(path)

    def write(self, frame: DataFrame, topic: str, **more: str) -> None:
        frame.write.format("pulsar").mode("append").options(**self.options(topic, **more)).save()


class KafkaReads(Reads):
    def __init__(self, spark: SparkSession, scratch: Path, server: KafkaServer) -> None:
        super().__init__(spark, scratch / "kafka")
        self._options = {"kafka.bootstrap.servers": server.address}

    def batch(self, topic: str) -> DataFrame:
        return self.spark.read.format("kafka").options(**self._options, subscribe=topic).load()

    def stream(self, topic: str) -> DataFrame:
        options = {**self._options, "subscribe": topic, "startingOffsets": "earliest"}
        return self.spark.readStream.format("kafka").options(**options).load()

    def write(self, frame: DataFrame, topic: str) -> None:
        producer = {"kafka.batch.size": str(SEND_BATCH_BYTES), "kafka.linger.ms": "50"}
        frame.select("value").write.format("kafka").options(**self._options, **producer, topic=topic).save()


class Load(NamedTuple):
    """The same work on both sides; the peer's, where it has the like."""

    name: str
    ours: Callable[[], object]
    theirs: Callable[[], object] | None = None
    aim: str = AIM
    share: int = 1
    settings: str = ""


def loads(size: int, messages: int, ours: PulsarReads, theirs: KafkaReads | None) -> list[Load]:
    topic = f"bench-{size}"
    made: list[Load] = []

    def add(name: str, our: Callable[[], object], their: Callable[[KafkaReads], object] | None = None) -> None:
        made.append(Load(name, our, None if theirs is None or their is None else lambda: their(theirs), AIM))

    add(
        "batch, value alone",
        lambda: ours.consume(ours.batch(topic, columns="value")),
        lambda kafka: kafka.consume(kafka.batch(topic)),
    )
    add(
        "batch, usual columns",
        lambda: ours.consume(ours.batch(topic)),
        lambda kafka: kafka.consume(kafka.batch(topic)),
    )
    add(
        "batch, every column used",
        lambda: ours.write_all(ours.batch(topic)),
        lambda kafka: kafka.write_all(kafka.batch(topic)),
    )
    add("batch, value alone, from bookies", lambda: ours.consume(ours.direct(topic)))
    add(
        "availableNow, value alone",
        lambda: ours.available_now(ours.stream(topic, columns="value")),
        lambda kafka: kafka.available_now(kafka.stream(topic)),
    )
    add(
        "availableNow, usual columns",
        lambda: ours.available_now(ours.stream(topic)),
        lambda kafka: kafka.available_now(kafka.stream(topic)),
    )
    made.append(
        Load("Parquet scan", lambda: ours.consume(ours.parquet(topic)), aim="", settings="the same rows: the limit")
    )
    rows = ours.spark.range(0, messages // SINK_SHARE, numPartitions=2)
    frame = rows.selectExpr(f"cast(rpad(cast(id as string), {size}, 'x') as binary) as value")
    made.append(sink_load("sink, exactly once (Kafka: at least once)", "exactly-once", frame, size, ours, theirs))
    made.append(sink_load("sink, at least once", "at-least-once", frame, size, ours, theirs))
    return made


def sink_load(
    name: str, delivery: str, frame: DataFrame, size: int, ours: PulsarReads, theirs: KafkaReads | None
) -> Load:
    def fresh() -> str:
        return f"sink-{size}-{time.time_ns()}"

    return Load(
        name,
        lambda: ours.write(frame, fresh(), delivery=delivery),
        None if theirs is None else lambda: theirs.write(frame, fresh()),
        aim="",
        share=SINK_SHARE,
        settings=f"delivery={delivery}",
    )


def scale_words(messages: int) -> str:
    return f"{'quick, ' if messages < CLAIM_MESSAGES else ''}{messages:,} messages, local[2]"


def measure(load: Load, messages: int, rounds: int) -> tuple[list[Taken], list[Taken]]:
    """What each side took, round by round in turn; the first round warms."""
    found: tuple[list[Taken], list[Taken]] = ([], [])
    for number in range(rounds + 1):
        for run, kept in ((load.ours, found[0]), (load.theirs, found[1])):
            if run is None:
                continue
            taken = timed(run)
            if number:
                kept.append(taken)
    return found


def figures(name: str, load: Load, taken: list[Taken], messages: int) -> list[Figure]:
    rows = messages // load.share
    rates = tuple(rows / one.seconds for one in taken)
    per_row = tuple(one.cpu_s / rows * 1e6 for one in taken)
    words = [f"{rows:,} rows, local[2]", f"median of {len(taken)}", *filter(None, [load.settings])]
    settings = "; ".join(words)
    return [
        Figure(name, median(rates), "rows/s", aim=load.aim, settings=settings, rounds=rates),
        Figure(f"  {name}, CPU of all processes", median(per_row), "µs/row", LESS, settings=settings, rounds=per_row),
    ]


def run_all(run: Run, ours: PulsarReads, theirs: KafkaReads | None, arguments: argparse.Namespace) -> None:
    messages: int = arguments.messages
    for size in (int(text) for text in arguments.sizes.split(",")):
        topic = f"bench-{size}"
        began = time.perf_counter()
        fill(ours.standalone.service_url, f"persistent://public/default/{topic}", messages, size)
        ours.close_ledger(topic)
        if theirs is not None:
            theirs.write(ours.batch(topic, columns="value"), topic)
        print(f"filled {messages:,} of {size} B in {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
        for load in loads(size, messages, ours, theirs):
            if arguments.only and not any(word in load.name for word in arguments.only):
                continue
            name = f"{size} B {load.name}"
            own, other = measure(load, messages, arguments.rounds)
            sides = {"magnetar": figures(name, load, own, messages)}
            if other:
                sides["kafka"] = figures(name, load, other, messages)
            run.add("spark", sides, os.getloadavg()[0], name, arguments.rounds)
            run.write()
            said = {side: " ".join(one.text for one in found) for side, found in sides.items()}
            print(name, said, f"load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="beside Spark's own Kafka source, fetched by Maven")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], help="loads whose name has one of these words")
    arguments = parser.parse_args()
    kafka: Kafka | None = None
    if arguments.peers:
        try:
            kafka = Kafka()
        except Missing as error:
            print(f"skipped: {error}", file=sys.stderr)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    sides = [Side("magnetar", Magnetar().words())]
    settings = {"spark_ui_enabled": "false", "spark_driver_bindAddress": "127.0.0.1", "spark_driver_memory": "2g"}
    # A machine that is busy otherwise is no reason to give a query up.
    settings["spark_python_authenticate_socketTimeout"] = "120s"
    if kafka is not None:
        sides.append(Side("kafka", kafka.words()))
        settings["spark_jars"] = ",".join(map(str, kafka.connector_jars))
    run = Run("spark", machine_words(), scale_words(arguments.messages), sides)
    run.keep_earlier()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, ExitStack() as stack:
        directory = Path(scratch)
        config = directory / "broker.conf"
        config.write_text("brokerDeduplicationEnabled=true\n")
        doors = ("--config", str(config), "--bookie-port", "0", "--metadata-port", "0")
        standalone = stack.enter_context(StandaloneProcess(directory / "run", *doors))
        server = None if kafka is None else stack.enter_context(kafka.server(directory / "kafka"))
        spark = magnetar_spark.session("bench", master="local[2]", **settings)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        theirs = None if server is None else KafkaReads(spark, directory, server)
        run_all(run, PulsarReads(spark, directory, standalone), theirs, arguments)
    run.show()


if __name__ == "__main__":
    main()
