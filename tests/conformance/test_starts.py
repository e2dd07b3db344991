# SPDX-License-Identifier: Apache-2.0
"""What each role needs to start, what it says without it, and that it ends when it is told to."""

from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.brokers import QUIET
from tests.cluster import Cluster, RoleProcess


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A metadata server, and no bookie."""
    with Cluster(tmp_path_factory.mktemp("starts"), bookies=0, broker=False) as cluster:
        yield cluster


def broker(directory: Path, *arguments: str, **environment: str) -> RoleProcess:
    words = ("broker", "--port", "0", "--http-port", "0", *arguments)
    return RoleProcess("broker", directory / "broker", *words, environment=environment)


@pytest.mark.feature("F-DEP-06")
def test_a_broker_says_that_it_needs_a_shared_store(tmp_path: Path) -> None:
    lost = broker(tmp_path)
    lost.launch()
    assert lost.wait() == 2
    assert "a cluster shares its metadata: give --metadata" in lost.log_tail()


@pytest.mark.feature("F-DEP-06", "F-DEP-13")
def test_a_broker_of_another_cluster_is_refused_and_too_few_bookies_are_named(
    metadata: Cluster, tmp_path: Path
) -> None:
    first = broker(tmp_path, "--metadata", metadata.metadata_url, clusterName="east")
    try:
        url = first.start()["serviceUrl"]
        stranger = broker(tmp_path / "other", "--metadata", metadata.metadata_url, clusterName="west")
        stranger.launch()
        assert stranger.wait() == 2
        assert "belongs to cluster 'east', and clusterName is 'west'" in stranger.log_tail()
        client = pulsar.Client(url, operation_timeout_seconds=3, logger=QUIET)
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("persistent://public/default/t")
        client.close()
        assert "2 bookies are needed; 0 could be chosen from" in first.log_tail()
        assert first.stop() == 0
    finally:
        if first.is_running:
            first.kill()
