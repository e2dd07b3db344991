# SPDX-License-Identifier: Apache-2.0
"""A consume-process-produce loop over two brokers; the one that keeps the coordinator is killed while it commits."""

import asyncio
from pathlib import Path

import pytest

from magnetar import Client, Transaction
from tests.brokers import QUICK, done, owner_of
from tests.cluster import Cluster
from tests.conformance.client_service import run
from tests.faults.test_transactions_kill_9 import INPUTS, Copying

KILLS = 2
COORDINATOR = "persistent://pulsar/system/transaction_coordinator_assign-partition-{}"
SOURCE = "persistent://public/default/in"
TARGET = "persistent://public/default/out"


class CopyingSlowly(Copying):
    """Says whose transaction is being committed, so that it can be struck just then."""

    TIMEOUT_MS = 5_000

    def __init__(self, client: Client) -> None:
        super().__init__(client, SOURCE, TARGET)
        self.committing: asyncio.Queue[int] = asyncio.Queue()

    def on_committing(self, txn: Transaction) -> None:
        self.committing.put_nowait(txn.ids[0])


def check_administration(cluster: Cluster) -> None:
    """Any broker may be asked about any coordinator."""
    root = "/admin/v3/transactions"
    for role in cluster.brokers:
        listed = done(role, "GET", f"{root}/coordinators")
        assert [each["id"] for each in listed] == list(range(16))
        assert {each["brokerServiceUrl"] for each in listed} == {each.said["serviceUrl"] for each in cluster.brokers}
        stats = done(role, "GET", f"{root}/coordinatorStats")
        assert list(stats) == [str(number) for number in range(16)]
        assert all(each["state"] == "Ready" for each in stats.values())
        for number in range(16):
            assert done(role, "GET", f"{root}/coordinatorStats?coordinatorId={number}") == stats[str(number)]
        assert done(role, "GET", f"{root}/slowTransactions/0") == {}


@pytest.mark.feature("F-TXN-15", "F-TXN-04", "F-TXN-02", "F-TXN-10", "D-06")
def test_a_commit_survives_its_coordinators_broker(tmp_path: Path) -> None:
    async def kill_in_commits(cluster: Cluster, copying: CopyingSlowly) -> None:
        loop = asyncio.get_running_loop()
        for number in range(1, KILLS + 1):
            while len(copying.outputs) < number * INPUTS // (KILLS + 2):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            owners = {n: await loop.run_in_executor(None, owner_of, cluster, COORDINATOR.format(n)) for n in range(16)}
            while not copying.committing.empty():
                copying.committing.get_nowait()
            role = owners[await copying.committing.get()]
            role.kill()
            await loop.run_in_executor(None, role.start)

    async def test(cluster: Cluster) -> None:
        async with Client(cluster.service_url) as client:
            copying = CopyingSlowly(client)
            await copying.through(kill_in_commits(cluster, copying), 200)

    environment = {**QUICK, "transactionCoordinatorEnabled": "true", "brokerDeduplicationEnabled": "true"}
    with Cluster(tmp_path, bookies=2, brokers=2, environment=environment) as cluster:
        served = {owner_of(cluster, COORDINATOR.format(number)).name for number in range(16)}
        assert served == {"broker", "broker-1"}, "each broker keeps some coordinators"
        check_administration(cluster)
        run(test(cluster))
