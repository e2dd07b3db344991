# SPDX-License-Identifier: Apache-2.0
"""On a cluster of two executors: one of them is killed, a slow task is run twice at once; every row is there once.

Only `make spark-faults` (MAGNETAR_SPARK_FAULTS=all) runs these.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magnetar.blocking import Client
from tests.processes import StandaloneProcess
from tests.spark import crash_points
from tests.spark.loopback_cluster import LoopbackCluster
from tests.spark.test_batch_source import publish
from tests.spark.test_driver_kills import DRIVER_LIMIT_S, MESSAGES, Driver, check_exact, everywhere, python_path

SPECULATION = {
    "spark_speculation": "true",
    "spark_speculation_interval": "100ms",
    "spark_speculation_quantile": "0.1",
    "spark_speculation_multiplier": "1.1",
    "spark_speculation_minTaskRuntime": "100ms",
}


@pytest.fixture(scope="module")
def cluster(needs: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    needs("java", "Spark needs Java 17 or newer: apt install openjdk-17-jre-headless, or set JAVA_HOME")
    directory = tmp_path_factory.mktemp("cluster")
    environment = {"PYTHONPATH": python_path(), crash_points.FILE: str(directory / "crash")}
    with LoopbackCluster(directory, environment) as made:
        yield made


@pytest.fixture
def driver(
    cluster: LoopbackCluster, standalone: StandaloneProcess, client: Client, topic: str, tmp_path: Path
) -> Driver:
    publish(client, topic, MESSAGES)
    made = Driver(standalone, topic, tmp_path)
    made.crash_file = cluster.directory / "crash"
    return made


@everywhere
@pytest.mark.timeout(DRIVER_LIMIT_S)
@pytest.mark.feature("F-SPK-02", "F-SPK-06")
@pytest.mark.parametrize("point", ["reading", "staging", "staged"])
def test_an_executor_killed_in_its_task_is_replaced_and_every_row_is_there_once(
    cluster: LoopbackCluster, driver: Driver, standalone: StandaloneProcess, topic: str, point: str
) -> None:
    driver.plan(point, "executor")
    assert driver.run(2, 3, master=cluster.master, settings=cluster.settings) == 0, driver.log()
    assert driver.has_struck
    check_exact(standalone, topic)


@everywhere
@pytest.mark.timeout(DRIVER_LIMIT_S)
@pytest.mark.feature("F-SPK-02", "F-SPK-06")
def test_a_task_that_runs_twice_at_once_writes_its_rows_once(
    cluster: LoopbackCluster, driver: Driver, standalone: StandaloneProcess, topic: str, tmp_path: Path
) -> None:
    mark = tmp_path / "straggler"
    settings = {**cluster.settings, **SPECULATION}
    code = driver.run(2, 3, master=cluster.master, settings=settings, straggler=str(mark))
    assert code == 0, driver.log()
    assert mark.exists(), "no task lingered"
    assert not mark.read_text()
    check_exact(standalone, topic)
