# SPDX-License-Identifier: Apache-2.0
"""One Spark session and one standalone for the whole run; a topic of its own for each test."""

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from magnetar.blocking import Client
from tests.processes import StandaloneProcess
from tests.spark_extra import ignored_without_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

collect_ignore_glob = ignored_without_pyspark("tests/spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run side by side, those that need the session share one; the others need not wait for them."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("session"))


@pytest.fixture(scope="session")
def crash_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Says where a worker is killed; workers look for it from their start on."""
    path = tmp_path_factory.mktemp("crash") / "crash"
    os.environ["MAGNETAR_TEST_CRASH_FILE"] = str(path)
    return path


@pytest.fixture(scope="session")
def spark(
    needs: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory, crash_file: Path
) -> "Iterator[SparkSession]":
    needs("java", "Spark needs Java 17 or newer: apt install openjdk-17-jre-headless, or set JAVA_HOME")
    from magnetar import spark as magnetar_spark
    from tests.spark.loopback_cluster import SHORT_LIVED_JVM

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Others may join this session, as they join `magnetar sql --serve`; its JVM is the only one that tests wait for.
    from magnetar.spark.sql.served import server_settings

    serving = server_settings(0)
    house = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (house, os.environ.get("PYTHONPATH"))))
    made = magnetar_spark.session(
        "tests",
        master="local[2,4]",
        spark_ui_port="0",
        spark_ui_showConsoleProgress="false",
        spark_sql_shuffle_partitions="2",
        spark_driver_bindAddress="127.0.0.1",
        spark_driver_memory="1g",
        spark_driver_extraJavaOptions=SHORT_LIVED_JVM,
        # A machine that is busy with other suites is no reason to give a query up.
        spark_python_authenticate_socketTimeout="120s",
        # What an operator keeps of a query, so that a test can look for secrets in it.
        spark_eventLog_enabled="true",
        spark_eventLog_dir=f"file://{tmp_path_factory.mktemp('events')}",
        **serving,
    )
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    directory = tmp_path_factory.mktemp("standalone")
    config = directory / "broker.conf"
    config.write_text("brokerDeduplicationEnabled=true\ntransactionCoordinatorEnabled=true\n")
    doors = ("--bookie-port", "0", "--metadata-port", "0")
    with StandaloneProcess(directory, "--config", str(config), *doors) as process:
        yield process


@pytest.fixture(scope="session")
def metadata_url(standalone: StandaloneProcess) -> str:
    """Where the standalone serves its metadata to those who read ledgers themselves."""
    url: str = json.loads((standalone.directory / "ready.json").read_text())["metadataUrl"]
    return url


@pytest.fixture(scope="session")
def admin(standalone: StandaloneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{standalone.web_url}/admin/v2", timeout=30) as made:
        yield made


@pytest.fixture
def options(standalone: StandaloneProcess, topic: str) -> dict[str, str]:
    return {"service.url": standalone.service_url, "topic": topic}


@pytest.fixture(scope="session")
def client(standalone: StandaloneProcess) -> Iterator[Client]:
    with Client(standalone.service_url) as made:
        yield made


_numbers = itertools.count()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W+", "-", request.node.name)
    return f"persistent://public/default/{name}-{next(_numbers)}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sink writes in this process is staged in batches of twenty rows."""
    from magnetar.spark import writer

    monkeypatch.setattr(writer, "BATCH_MESSAGES_MAX", 20)
