# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka, its load generators and Spark's own source for it, to be measured beside ours: jars fetched by Maven.

    python -m benchmarks.kafka_peer fetch       fetch them into the cache (about 100 MB)

One broker in KRaft mode with upstream's heap and settings, except the ports and loopback; as a peer of brokers also
with a sync before every receipt, as ours. The connector is that of the installed Spark, or the newest one before it
where that is not published; KAFKA_CONNECTOR names another version. Nothing of it is part of Magnetar.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.peers import Missing, cached, fetching, java_for, java_told, keep, run_to_fetch
from tests.processes import free_port

SCALA: Final = "2.13"
BROKER_VERSION: Final = "3.9.2"
TOKEN_PROVIDER_VERSION: Final = "4.0.0"
"""A small part that the connector needs and that not every repository has in all versions; it does nothing here."""
PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies"
HEAP: Final = ("-Xms1G", "-Xmx1G", "-XX:+UseG1GC")
START_LIMIT_S: Final = 120.0
_POM: Final = """<project><modelVersion>4.0.0</modelVersion>
<groupId>magnetar</groupId><artifactId>peer</artifactId><version>1</version><dependencies>{}</dependencies></project>
"""
_DEPENDENCY: Final = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
_ALONE: Final = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_SETTINGS: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
message.max.bytes=2097152
num.partitions={partitions}
"""
SYNC_BEFORE_RECEIPT: Final = "log.flush.interval.messages=1\n"


def _jars(name: str, *dependencies: str) -> Path:
    """The directory with these artifacts; fetched when it is not there."""
    kept = cached(name)
    if any(kept.glob("*.jar")):
        return kept
    with fetching(name, kept) as scratch:
        pom, jars = scratch / "pom.xml", scratch / "jars"
        pom.write_text(_POM.format("".join(dependencies)))
        command = ["mvn", "-q", "-B", "-f", str(pom), PLUGIN, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        run_to_fetch(name, command)
        keep(jars, kept)
    return kept


def connector() -> tuple[str, list[Path]]:
    """The version of Spark's Kafka source, and the jars that Spark does not have itself."""
    spark = version("pyspark")
    major, minor = (int(part) for part in spark.split(".")[:2])
    named = os.environ.get("KAFKA_CONNECTOR")
    problem: Missing | None = None
    for wanted in [named] if named else [spark, f"{major}.{minor - 1}.0"]:
        parts = [
            ("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", wanted),
            ("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}", TOKEN_PROVIDER_VERSION),
            ("org.apache.kafka", "kafka-clients", BROKER_VERSION),
            ("org.apache.commons", "commons-pool2", "2.13.1"),
        ]
        try:
            jars = _jars(f"spark-kafka-{wanted}", *(_DEPENDENCY.format(*part, _ALONE) for part in parts))
        except Missing as error:
            problem = error
            continue
        return wanted, sorted(jars.glob("*.jar"))
    assert problem is not None
    raise problem


class KafkaServer:
    """One broker and controller in one JVM; `with` starts and kills it."""

    def __init__(self, class_path: str, directory: Path, *, partitions: int = 2, more_settings: str = "") -> None:
        self._class_path = class_path
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.data_directory = directory / "logs"
        directory.mkdir(parents=True)
        settings = _SETTINGS.format(
            port=self.port, controller=free_port(), logs=self.data_directory, partitions=partitions
        )
        (directory / "server.properties").write_text(settings + more_settings)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def java(self, *words: str) -> list[str]:
        """The command line of one of Kafka's classes."""
        return [java_for("Apache Kafka"), "-cp", self._class_path, *words]

    def make_storage(self) -> None:
        """What is done once for a data directory, before the first start."""
        settings = str(self._directory / "server.properties")
        made = ("format", "-t", "bWFnbmV0YXItcGVlci0wMQ", "-c", settings)
        with (self._directory / "log").open("ab") as log:
            subprocess.run(self.java("kafka.tools.StorageTool", *made), stdout=log, stderr=log, check=False)

    def launch(self) -> None:
        """Start the process, without a wait."""
        command = self.java(*HEAP, "kafka.Kafka", str(self._directory / "server.properties"))
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait_until_it_serves(self) -> None:
        assert self._process is not None
        until = time.monotonic() + START_LIMIT_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > until:
                tail = (self._directory / "log").read_text(errors="replace")[-600:]
                self.kill()
                raise Missing(f"Apache Kafka does not start: {tail}")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self.make_storage()
        self.launch()
        self.wait_until_it_serves()
        return self

    def _serves(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """kill -9 of the session that it was started in, and of nothing else."""
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


def _broker_jars() -> Path:
    return _jars(
        f"kafka-{BROKER_VERSION}", _DEPENDENCY.format("org.apache.kafka", f"kafka_{SCALA}", BROKER_VERSION, "")
    )


class KafkaBrokers:
    """The published broker as a peer of brokers, with its own load generators; `Missing` when they cannot be had."""

    name = "kafka"

    def __init__(self) -> None:
        java_for("Apache Kafka")
        tools = _DEPENDENCY.format("org.apache.kafka", "kafka-tools", BROKER_VERSION, _ALONE)
        self._class_path = f"{_broker_jars()}/*:{_jars(f'kafka-tools-{BROKER_VERSION}', tools)}/*"

    def words(self) -> str:
        return (
            f"Apache Kafka {BROKER_VERSION} (KRaft, {java_told()}, {' '.join(HEAP)}), one partition, acks=all, "
            f"{SYNC_BEFORE_RECEIPT.strip()}; loaded by its own ProducerPerformance and ConsumerPerformance"
        )

    def server(self, directory: Path) -> KafkaServer:
        return KafkaServer(self._class_path, directory, partitions=1, more_settings=SYNC_BEFORE_RECEIPT)


class Kafka:
    """The published broker and Spark's connector; `Missing` when they cannot be had."""

    def __init__(self) -> None:
        java_for("Apache Kafka")
        self.connector_version, self.connector_jars = connector()
        self._class_path = f"{_broker_jars()}/*"

    def words(self) -> str:
        return (
            f"Apache Kafka {BROKER_VERSION} (KRaft, {java_told()}, {' '.join(HEAP)}) "
            f"through Spark's Kafka source {self.connector_version}"
        )

    def server(self, directory: Path) -> KafkaServer:
        return KafkaServer(self._class_path, directory)


if __name__ == "__main__":
    if sys.argv[1:] != ["fetch"]:
        raise SystemExit(__doc__)
    try:
        print(KafkaBrokers().words(), Kafka().words(), sep="\n")
    except Missing as error:
        raise SystemExit(str(error)) from None
