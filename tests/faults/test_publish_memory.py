# SPDX-License-Identifier: Apache-2.0
"""A broker's memory is bounded by its settings, however slow its bookies are and however fast its producers."""

import signal
import threading
from pathlib import Path

import pulsar
import pytest

from tests.cluster import Cluster, RoleProcess
from tests.conftest import Eventually

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
PAYLOAD = b"x" * 50_000
BUDGET_MIB = 16
CACHE_MIB = 8
# What may wait for one bookie before it counts as failed.
BOOKIE_MIB = 32
# What the allocator keeps of what was freed, in pieces that fit nothing else: up to 56 MiB were seen.
SLACK_MIB = 80
BOUND_MIB = BUDGET_MIB + CACHE_MIB + BOOKIE_MIB + SLACK_MIB
SETTINGS = {
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "3",
    "managedLedgerDefaultAckQuorum": "2",
    "maxMessagePublishBufferSizeInMB": str(BUDGET_MIB),
    "managedLedgerCacheSizeMB": str(CACHE_MIB),
    "MAGNETAR_CHANNEL_OUTSTANDING_BYTES_MAX": str(BOOKIE_MIB << 20),
    # Nobody is replaced for being slow alone.
    "bookkeeperClientTimeoutInSeconds": "120",
    "addEntryTimeoutSec": "120",
}


def resident_mib(role: RoleProcess) -> float:
    assert role._process is not None
    status = Path(f"/proc/{role._process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


def _settled(role: RoleProcess, seen: list[float]) -> bool:
    """Whether memory has stopped growing; `seen` gets every look."""
    seen.append(resident_mib(role))
    return len(seen) > 20 and max(seen[-10:]) - min(seen[-10:]) < 1


@pytest.mark.timeout(240)
@pytest.mark.feature("F-DISP-14", "F-PRB-02", "F-PRB-12")
def test_slow_bookies_do_not_fill_the_brokers_memory(tmp_path: Path, eventually: Eventually) -> None:
    with Cluster(tmp_path, bookies=4, environment=SETTINGS) as cluster:
        assert cluster.broker is not None
        client = pulsar.Client(cluster.service_url, logger=QUIET)
        producer = client.create_producer(
            "t", batching_enabled=False, max_pending_messages=5_000, block_if_queue_full=True, send_timeout_millis=0
        )
        stored = threading.Semaphore(0)

        def send(count: int) -> None:
            for _ in range(count):
                producer.send_async(PAYLOAD, lambda *_: stored.release())

        def await_stored(count: int) -> None:
            for _ in range(count):
                assert stored.acquire(timeout=120)

        send(200)
        await_stored(200)
        calm = resident_mib(cluster.broker)
        slow = cluster.bookies[0]
        slow.signal(signal.SIGSTOP)
        send(1_200)
        await_stored(1_200)
        # 60 MB went by the slow copy: what waits for it is bounded, per bookie and in all.
        assert resident_mib(cluster.broker) < calm + BOUND_MIB
        for bookie in cluster.bookies[1:3]:
            bookie.signal(signal.SIGSTOP)
        send(3_200)
        # 160 MB are offered, nothing can be stored: the connection is not read beyond the budget.
        highest = [resident_mib(cluster.broker)]
        eventually(lambda: _settled(cluster.broker, highest))
        assert highest[-1] < calm + BOUND_MIB
        for bookie in cluster.bookies[:3]:
            bookie.signal(signal.SIGCONT)
        await_stored(3_200)
        assert resident_mib(cluster.broker) < calm + BOUND_MIB
        client.close()
