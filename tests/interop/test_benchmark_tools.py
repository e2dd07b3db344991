# SPDX-License-Identifier: Apache-2.0
"""Apache BookKeeper's own benchmark programs against our bookies: they come to their end, in both protocols.

BOOKKEEPER_BENCHMARK names the jar; Maven has it:
`mvn dependency:copy -Dartifact=org.apache.bookkeeper:bookkeeper-benchmark:4.17.3 -DoutputDirectory=DIR`.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cluster import Cluster
from tests.interop.apache import COMMAND_LIMIT_S, MEMORY, distribution

ENTRIES = 2_000


@pytest.fixture(scope="module")
def jar() -> Path:
    distribution()
    named = os.environ.get("BOOKKEEPER_BENCHMARK")
    if not named:
        pytest.skip("BOOKKEEPER_BENCHMARK names no jar of org.apache.bookkeeper:bookkeeper-benchmark")
    return Path(named)


@pytest.fixture(scope="module")
def cluster(jar: Path, zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    metadata = f"zk:{zookeeper}/{uuid4().hex}"
    with Cluster(tmp_path_factory.mktemp("benchmark"), metadata=metadata, broker=False) as running:
        for bookie in running.bookies:
            bookie.until_ready()
        yield running


def benchmark(jar: Path, program: str, directory: Path, *arguments: str) -> str:
    """Run one of them to its end; what it printed and logged."""
    classes = f"{jar}:{distribution() / 'lib'}/*"
    line = ["java", *MEMORY.split(), "-cp", classes, f"org.apache.bookkeeper.benchmark.{program}", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False, cwd=directory)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    return said


def servers(cluster: Cluster) -> str:
    """The ZooKeeper and the directory in it, as Java's client takes them."""
    return cluster.metadata_url.removeprefix("zk:")


@pytest.mark.parametrize("protocol", [("-useV2",), ()], ids=["version 2", "version 3"])
def test_the_throughput_program_sends_all_its_entries(
    cluster: Cluster, jar: Path, tmp_path: Path, protocol: tuple[str, ...]
) -> None:
    said = benchmark(
        jar, "BenchThroughputLatency", tmp_path, "-zookeeper", servers(cluster), "-ensemble", "3", "-quorum", "3",
        "-ackQuorum", "2", "-ledgers", "2", "-time", "300", "-sendlimit", str(ENTRIES), "-throttle", "500",
        "-warmupMessages", "200", "-sockettimeout", "120", *protocol,
    )  # fmt: skip
    found = re.search(r"(\d+) completions in", said)
    assert found is not None, said[-4000:]
    assert int(found.group(1)) >= ENTRIES


def test_the_program_for_one_bookie_comes_to_its_end(cluster: Cluster, jar: Path, tmp_path: Path) -> None:
    host, _, port = str(cluster.bookies[0].until_ready()["bookieId"]).rpartition(":")
    said = benchmark(
        jar, "BenchBookie", tmp_path, "-zookeeper", servers(cluster), "-host", host, "-port", port,
        "-warmupCount", "50", "-latencyCount", "50", "-throughputCount", str(ENTRIES),
    )  # fmt: skip
    assert "Throughput" in said
