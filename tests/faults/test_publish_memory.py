# SPDX-License-Identifier: Apache-2.0
"""A broker's memory is bounded by its settings, however slow its bookies are and however fast its producers."""

import signal
import threading
import urllib.request
from pathlib import Path

import pulsar
import pytest

from tests.cluster import Cluster, RoleProcess
from tests.conftest import Eventually

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
PAYLOAD = b"x" * 50_000
BUDGET_MIB = 16
CACHE_MIB = 8
# What may be on its way to one bookie and wait in order behind that, before it counts as failed: together twice what is
# published at one time, so that no bookie that works is ever refused.
SENT_MIB = 16
HELD_MIB = 16
# The one that hangs, and the one that is last of the others when they go on.
LAGGING = 2
# What the allocator keeps of what was freed, in pieces that fit nothing else.
SLACK_MIB = 40
BOUND_MIB = BUDGET_MIB + CACHE_MIB + LAGGING * (SENT_MIB + HELD_MIB) + SLACK_MIB
# More than the bound, so that memory without one would show.
OFFERED = 2 * BOUND_MIB * 1024 * 1024 // len(PAYLOAD)
SETTINGS = {
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "3",
    "managedLedgerDefaultAckQuorum": "2",
    "maxMessagePublishBufferSizeInMB": str(BUDGET_MIB),
    "managedLedgerCacheSizeMB": str(CACHE_MIB),
    "MAGNETAR_CHANNEL_OUTSTANDING_BYTES_MAX": str(SENT_MIB << 20),
    "MAGNETAR_CHANNEL_HELD_BYTES_MAX": str(HELD_MIB << 20),
    # Nobody is replaced for being slow alone.
    "bookkeeperClientTimeoutInSeconds": "120",
    "addEntryTimeoutSec": "120",
}


def resident_mib(role: RoleProcess) -> float:
    assert role._process is not None
    status = Path(f"/proc/{role._process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


def held_mib(role: RoleProcess) -> float:
    """What the broker says of itself."""
    with urllib.request.urlopen(f"{role.web_url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.startswith("magnetar_bytes_held_for_bookies"))) / 2**20


def _settled(role: RoleProcess, seen: list[float]) -> bool:
    """Whether memory has stopped growing; `seen` gets every look."""
    seen.append(resident_mib(role))
    return len(seen) > 20 and max(seen[-10:]) - min(seen[-10:]) < 1


@pytest.mark.timeout(240)
@pytest.mark.feature("F-DISP-14", "F-PRB-02", "F-PRB-12")
def test_slow_bookies_do_not_fill_the_brokers_memory(tmp_path: Path, eventually: Eventually) -> None:
    with Cluster(tmp_path, bookies=3, environment=SETTINGS) as cluster:
        assert cluster.broker is not None
        client = pulsar.Client(cluster.service_url, logger=QUIET)
        producer = client.create_producer(
            "t", batching_enabled=False, max_pending_messages=OFFERED, block_if_queue_full=True, send_timeout_millis=0
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
        # The administration is loaded behind the first clients: what it takes is there before anything is compared.
        assert held_mib(cluster.broker) == 0
        # It comes when the ledger has its three, so that the one that hangs is one of them.
        cluster.add_bookie("bookie-spare").start()
        calm = resident_mib(cluster.broker)
        slow = cluster.bookies[0]
        slow.signal(signal.SIGSTOP)
        send(OFFERED)
        await_stored(OFFERED)
        # All of it went by the slow copy: what waits for it is bounded, and said.
        assert HELD_MIB / 2 < held_mib(cluster.broker) <= LAGGING * HELD_MIB
        assert resident_mib(cluster.broker) < calm + BOUND_MIB
        for bookie in cluster.bookies[1:3]:
            bookie.signal(signal.SIGSTOP)
        send(OFFERED)
        # As much again is offered, nothing can be stored: the connection is not read beyond the budget.
        highest = [resident_mib(cluster.broker)]
        eventually(lambda: _settled(cluster.broker, highest))
        assert highest[-1] < calm + BOUND_MIB
        for bookie in cluster.bookies[:3]:
            bookie.signal(signal.SIGCONT)
        await_stored(OFFERED)
        assert resident_mib(cluster.broker) < calm + BOUND_MIB
        client.close()
