# SPDX-License-Identifier: Apache-2.0
"""Real processes under load and random faults: `python -m tests.faults.soak --minutes N [--seed X] [--metadata URL]`.

A metadata server, four bookies and a broker; producers and consumers of every subscription type, official and our own.
Prints a line a minute and a final table; the exit code is 1 when a promise was broken. The seed decides which faults
come in which order; when exactly they meet the load, the machine decides.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from magnetar.blocking import Client as OwnClient
from magnetar.runtime.chance import fresh_seed
from tests.cluster import Cluster
from tests.faults.soak_checks import violations
from tests.faults.soak_faults import Faults, Links
from tests.faults.soak_load import TOPIC, History, OfficialProducer, OwnProducer, Worker, consumers, official_client
from tests.faults.test_kill_9 import read_everything
from tests.faults.zookeeper_ensemble import ZooKeeperEnsemble

_ENVIRONMENT = {
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "3",
    "managedLedgerDefaultAckQuorum": "2",
    "bookkeeperClientTimeoutInSeconds": "2",
    "journalMaxSizeMB": "8",
    "journalPreAllocSizeMB": "1",
    "diskCheckInterval": "500",
    "managedLedgerMaxEntriesPerLedger": "2000",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}
_CALM_S = 180.0
_VIOLATIONS_SHOWN_MAX = 20


class Soak:
    def __init__(self, cluster: Cluster, faults: Faults, random: Random, minutes: float) -> None:
        self._faults = faults
        self._random = random
        self._minutes = minutes
        self._history = History()
        # By kind of fault: the longest time without a receipt.
        self._pauses_s: dict[str, float] = {}
        self._official = official_client(cluster.service_url)
        self._own = OwnClient(cluster.service_url, operation_timeout_seconds=120)
        self._consumers: list[Worker] = [*consumers(self._official, self._own, self._history)]
        self._producers: list[Worker] = [
            OfficialProducer("official", self._official, self._history, 0.004),
            OfficialProducer("official-batched", self._official, self._history, 0.002),
            OwnProducer("own", self._own, self._history, 0.004),
        ]

    def run(self) -> int:
        for worker in (*self._consumers, *self._producers):
            worker.start()
        started = time.monotonic()
        minute = 0
        while (passed_s := time.monotonic() - started) < self._minutes * 60:
            if passed_s >= (minute + 1) * 60:
                minute += 1
                self._say_minute(minute)
            time.sleep(self._random.uniform(0.5, 4.0))
            self._history.take_pause_s()
            kind = self._faults.step()
            self._pauses_s[kind] = max(self._pauses_s.get(kind, 0.0), self._until_receipts())
        for worker in self._producers:
            worker.stopping.set()
        for worker in self._producers:
            worker.join(_CALM_S)
        self._drain()
        found = read_everything(self._official, TOPIC)
        broken = violations(self._history, found)
        workers = (*self._producers, *self._consumers)
        broken += [f"{worker.name} ended with {worker.failure!r}" for worker in workers if worker.failure is not None]
        self._official.close()
        self._own.close()
        self._say_table(found, broken)
        return 1 if broken else 0

    def _until_receipts(self) -> float:
        """How long nobody got a receipt because of the fault that is over now."""
        _, before, _ = self._history.counts()
        until = time.monotonic() + _CALM_S
        while self._history.counts()[1] == before and time.monotonic() < until:
            time.sleep(0.01)
        return self._history.take_pause_s()

    def _drain(self) -> None:
        """Until every subscription has got all that was acknowledged, or patience ends."""
        until = time.monotonic() + _CALM_S
        wanted = set(self._history.acknowledged)
        while time.monotonic() < until:
            with self._history.lock:
                got = [{each.name for each in taken} for taken in self._history.taken.values()]
            if all(wanted <= names for names in got):
                break
            time.sleep(0.5)
        for worker in self._consumers:
            worker.stopping.set()
        for worker in self._consumers:
            worker.join(60)

    def _say_minute(self, minute: int) -> None:
        sent, acknowledged, taken = self._history.counts()
        struck = ", ".join(f"{kind} {count}" for kind, count in sorted(self._faults.struck.items()))
        _say(f"minute {minute}: {sent} sent, {acknowledged} acknowledged, {taken} taken; {struck}")

    def _say_table(self, found: list[str], broken: list[str]) -> None:
        sent, acknowledged, taken = self._history.counts()
        lost = sum("is gone" in sentence for sentence in broken)
        rows = [("sent", sent), ("acknowledged", acknowledged), ("stored", len(found))]
        rows += [("stored twice", len(found) - len(set(found))), ("lost", lost), ("taken by consumers", taken)]
        for subscription, each in sorted(self._history.taken.items()):
            again = len(each) - len({one.name for one in each})
            rows.append((f"  {subscription}: taken, of these again", f"{len(each)}, {again}"))  # type: ignore[arg-type]
        for kind, count in sorted(self._faults.struck.items()):
            pause = f", no receipt for {self._pauses_s[kind]:.1f} s" if kind in self._pauses_s else ""
            rows.append((f"fault: {kind}", f"{count}{pause}"))  # type: ignore[arg-type]
        rows += [("promises broken", len(broken))]
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            _say(f"| {name:<{width}} | {value:>14} |")
        for sentence in broken[:_VIOLATIONS_SHOWN_MAX]:
            _say(f"  {sentence}")
        results = Path(".results")
        results.mkdir(exist_ok=True)
        kept = {"minutes": self._minutes, **{name.strip(): value for name, value in rows}}
        (results / "soak.json").write_text(json.dumps(kept, indent=1) + "\n")


@contextmanager
def _small_disk(directory: Path) -> Iterator[Path | None]:
    """A bookie's directory on a file system of 96 MB; None, loudly, where mounting is not allowed."""
    directory.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(directory)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        _say("no full disks: mounting a small file system needs root")
        yield None
        return
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=fresh_seed() % 10**6)
    parser.add_argument("--links", action="store_true", help="cut and slow links, too")
    parser.add_argument(
        "--zookeeper", action="store_true", help="metadata on three ZooKeeper servers, which restart, too"
    )
    parser.add_argument("--metadata", help="the URL of a metadata store that is not to be struck, such as zk:host:port")
    options = parser.parse_args(arguments)
    random = Random(options.seed)
    _say(f"soak of {options.minutes:g} minutes, seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="magnetar-soak-") as name, ExitStack() as opened:
        directory = Path(name)
        ensemble = opened.enter_context(ZooKeeperEnsemble(directory / "zookeeper")) if options.zookeeper else None
        small = opened.enter_context(_small_disk(directory / "bookie-0" / "data"))
        host = Links.HOST if options.links else "127.0.0.1"
        metadata = options.metadata if ensemble is None else f"{ensemble.url}/soak"
        environment = {**_ENVIRONMENT, "advertisedAddress": host}
        cluster = Cluster(directory, bookies=4, metadata=metadata, environment=environment, metadata_host=host)
        links = Links(cluster) if options.links else None
        if links is not None:
            opened.callback(links.close)
        opened.enter_context(cluster)
        faults = Faults(cluster, random, small_disk=small, links=links, ensemble=ensemble)
        return Soak(cluster, faults, random, options.minutes).run()


if __name__ == "__main__":
    sys.exit(main())
