# SPDX-License-Identifier: Apache-2.0
"""Everything is restarted in turn, on a ZooKeeper ensemble, under official clients: none of them sees an error.

`make cluster-faults` runs it; test_mixed_versions.py restarts everything once in `make faults`.
"""

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pulsar
import pytest

from tests.brokers import QUICK, QUIET, admin, client_of
from tests.cluster import Cluster, ProxyRole, RoleProcess
from tests.conftest import Eventually
from tests.faults.test_bookies import until_more
from tests.faults.test_cluster import Calmly, Receiving, namespace_without_repetition
from tests.faults.test_kill_9 import read_everything
from tests.faults.zookeeper_ensemble import ZooKeeperEnsemble

pytestmark = pytest.mark.skipif(os.environ.get("CLUSTER_FAULTS") != "all", reason="make cluster-faults runs it")
ROUNDS = int(os.environ.get("ROUNDS", "2"))


def pauses(publishing: Calmly) -> float:
    """The longest time between two receipts, in seconds."""
    moments = sorted(publishing.acknowledged.values())
    return max((after - before for before, after in pairwise(moments)), default=0.0)


@pytest.mark.feature("F-DEP-05", "F-DEP-12", "F-HA-05", "F-HA-08")
@pytest.mark.timeout(1800)
def test_every_server_restarts_in_turn_and_no_client_sees_an_error(tmp_path: Path, eventually: Eventually) -> None:
    with (
        ZooKeeperEnsemble(tmp_path / "zookeeper") as ensemble,
        Cluster(tmp_path, bookies=3, brokers=3, metadata=f"{ensemble.url}/{uuid4().hex}", environment=QUICK) as cluster,
    ):
        proxies = [ProxyRole(f"proxy-{number}", tmp_path, cluster.metadata_url, QUICK) for number in range(2)]
        try:
            for proxy in proxies:
                proxy.start()
            topic = f"persistent://{namespace_without_repetition(cluster, 'rolled')}/t"
            direct = client_of(cluster)
            places = ",".join(proxy.said["serviceUrl"].removeprefix("pulsar://") for proxy in proxies)
            through = pulsar.Client(f"pulsar://{places}", operation_timeout_seconds=60, logger=QUIET)
            direct.subscribe(topic, "keeper").close()
            receiving, publishing = Receiving(through, topic), Calmly(direct, topic)
            longest: dict[str, float] = {}

            def roll(name: str, restart: Callable[[], object]) -> None:
                until_more(publishing, 100, eventually)
                publishing.acknowledged, before = {}, publishing.acknowledged
                restart()
                until_more(publishing, 100, eventually)
                longest[name] = max(longest.get(name, 0.0), pauses(publishing))
                publishing.acknowledged = {**before, **publishing.acknowledged}

            def again(role: RoleProcess) -> Callable[[], object]:
                return lambda: (role.stop(), role.start())

            try:
                for _ in range(ROUNDS):
                    for server in ensemble.servers:
                        roll("zookeeper", server.restart)
                    for kind, roles in (("bookie", cluster.bookies), ("broker", cluster.brokers), ("proxy", proxies)):
                        for role in roles:
                            assert role is not None
                            roll(kind, again(role))
            finally:
                publishing.stop()
                publishing.finish()
            assert publishing.acknowledged.keys() == set(publishing.sent)
            assert read_everything(direct, topic) == publishing.sent
            eventually(lambda: len(set(receiving.received)) == len(publishing.sent))
            receiving.stop()
            assert admin(cluster.brokers[0], "GET", "/admin/v2/brokers/health").status_code == 200
            _report(longest, len(publishing.sent))
            through.close()
            direct.close()
        finally:
            for proxy in proxies:
                if proxy.is_running:
                    proxy.kill()


def _report(longest: dict[str, float], messages: int) -> None:
    results = Path(".results")
    results.mkdir(exist_ok=True)
    kept = {
        "rounds": ROUNDS,
        "messages": messages,
        "longest_pause_ms": {name: round(seconds * 1000) for name, seconds in longest.items()},
    }
    (results / "rolling-restart.json").write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(kept))  # noqa: T201 - the report of a long run
