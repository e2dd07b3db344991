# SPDX-License-Identifier: Apache-2.0
"""Real processes under load and random faults: `python -m tests.faults.soak --minutes N [--seed X] [--metadata URL]`.

A metadata server, four bookies and a broker, each behind a link; producers and consumers of every subscription type,
official and our own. Prints a line a minute and a final table; the exit code is 1 when a promise was broken, or when
five minutes did not strike every kind of fault. The seed decides which faults come in which order; when exactly they
meet the load, the machine decides.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import httpx

from magnetar.blocking import Client as OwnClient
from magnetar.runtime.chance import fresh_seed
from tests.cluster import Cluster
from tests.faults.soak_checks import violations
from tests.faults.soak_faults import SESSION_MS, Faults, Links
from tests.faults.soak_history import ONCE_TOPIC, TOPIC, History, Kind, calm_windows
from tests.faults.soak_load import Worker, consumers, official_client, producers
from tests.faults.soak_watch import Ticking, Watch
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
    "metadataStoreSessionTimeoutMillis": str(SESSION_MS),
}
# How long anything may take to come back.
_PATIENCE_S = 180.0
_CALM_S = 8.0
# Now and then there is time between two faults to save what was acknowledged.
_PAUSE_S = (0.5, 4.0)
_LONG_PAUSE_S = (6.0, 10.0)
_LONG_PAUSE_CHANCE = 0.1
_TAKEN_OVER_MIN = 20
# From so many minutes on each kind of fault must have been struck.
_ALL_KINDS_MINUTES = 5.0
_SHOWN_MAX = 20


class Soak:
    def __init__(self, cluster: Cluster, random: Random, minutes: float) -> None:
        assert cluster.broker is not None
        self._broker = cluster.broker
        self._random = random
        self._minutes = minutes
        self.history = History()
        # By kind of fault: the longest time without a receipt.
        self._pauses_s: dict[str, float] = {}
        self._official = official_client(cluster.service_url)
        self._own = OwnClient(cluster.service_url, operation_timeout_seconds=120)
        self.consumers = consumers(self._official, self._own, self.history)
        self._producers = producers(self._official, self._own, self.history)
        self._workers: list[Worker] = [*self.consumers, *self._producers]
        self._watch = Watch(cluster.broker.web_url, self.history)
        self._troubles: list[str] = []

    def run(self, faults: Faults) -> int:
        for kind, why in sorted(faults.impossible.items()):
            _say(f"NOT STRUCK IN THIS RUN: {kind}: {why}")
        ticking = Ticking(60.0, lambda minute: self._say_minute(minute, faults))
        started_s = time.monotonic()
        self._watch.start()
        for worker in self._workers:
            worker.start()
        self._until_calm()
        while time.monotonic() - started_s < self._minutes * 60:
            is_long = self._random.random() < _LONG_PAUSE_CHANCE
            time.sleep(self._random.uniform(*(_LONG_PAUSE_S if is_long else _PAUSE_S)))
            if not self._strike(faults):
                break
        self._close_in_calm()
        found = {topic: read_everything(self._official, topic) for topic in (TOPIC, ONCE_TOPIC)}
        ticking.stop()
        broken = self._troubles + violations(self.history, found) + self._unstruck(faults)
        broken += [f"{worker.name} ended with {worker.failure!r}" for worker in self._workers if worker.failure]
        self._official.close()
        self._own.close()
        self._say_table(found, faults, broken)
        return 1 if broken else 0

    # --- its parts ------------------------------------------------------------------------------

    def _strike(self, faults: Faults) -> bool:
        """Whether that could be done, and whatever it struck runs again."""
        self.history.take_pause_s()
        try:
            kinds = faults.step()
        except Exception as error:
            self._troubles.append(f"a fault could not be struck or ended: {error!r}")
            return False
        kind = kinds[0] if len(kinds) == 1 else "two at a time"
        self._pauses_s[kind] = max(self._pauses_s.get(kind, 0.0), self._until_receipts())
        return True

    def _close_in_calm(self) -> None:
        """Faults are over: everybody is back, one takes over from the other, and everything gets to everybody."""
        self._until_calm()
        for consumer in self.consumers:
            if consumer.kind is Kind.FAILOVER:
                with self.history.disturbed(f"{consumer.name} is away"):
                    consumer.leave(lambda name=consumer.name: self._until_taken_over(name))  # type: ignore[misc]
        self._until_calm()
        for worker in self._producers:
            worker.stopping.set()
        for worker in self._producers:
            worker.join(_PATIENCE_S)
        self._drain()
        self._kill_once_more()

    def _until(self, what: str, is_so: Callable[[], bool], interval_s: float = 0.1) -> None:
        until_s = time.monotonic() + _PATIENCE_S
        while not is_so():
            if time.monotonic() >= until_s:
                self._troubles.append(f"{what} took more than {_PATIENCE_S:g} s")
                break
            time.sleep(interval_s)

    def _until_calm(self) -> None:
        everybody = len(self._workers)
        self._until("until all were connected and calm", lambda: self._watch.calm_s(everybody) >= _CALM_S)

    def _until_receipts(self) -> float:
        """How long nobody got a receipt because of the fault that is over now."""
        _, before, _ = self.history.counts()
        until_s = time.monotonic() + _PATIENCE_S
        while self.history.counts()[1] == before and time.monotonic() < until_s:
            time.sleep(0.01)
        return self.history.take_pause_s()

    def _until_taken_over(self, absent: str) -> None:
        taken = self.history.subscriptions["failover"].taken
        before = len(taken)

        def is_taken_over() -> bool:
            return sum(each.consumer != absent for each in taken[before:]) >= _TAKEN_OVER_MIN

        self._until(f"until another took over from {absent}", is_taken_over)

    def _drain(self) -> None:
        """Until every subscription has got all that was acknowledged, and has acknowledged it."""
        senders = [each for each in self.history.senders.values() if each.topic == TOPIC]
        wanted = [name for each in senders for name in each.names if name in self.history.acknowledged]
        missing = {name: set(wanted) for name in self.history.subscriptions}
        seen = dict.fromkeys(missing, 0)

        def is_drained() -> bool:
            backlogs = self._watch.backlogs()
            for name, subscription in self.history.subscriptions.items():
                new = subscription.taken[seen[name] :]
                seen[name] += len(new)
                missing[name].difference_update(each.name for each in new)
                subscription.backlog = backlogs.get(name)
            return not any(missing.values()) and not any(backlogs.get(name, 1) for name in missing)

        self._until("until everything was delivered and acknowledged", is_drained, 0.5)

    def _kill_once_more(self) -> None:
        """Everything is acknowledged: when that had time to be saved, nothing may come again."""
        since_s = time.monotonic()
        self._until("until all was saved", lambda: time.monotonic() - since_s >= _CALM_S)
        self._until_calm()
        self.history.settled_s = time.monotonic()
        with self.history.disturbed("last kill -9 of the broker"):
            self._broker.kill()
            self._broker.start()
        self._until_calm()
        backlogs = self._watch.backlogs()
        for name, subscription in self.history.subscriptions.items():
            subscription.backlog = backlogs.get(name)
        self._watch.stop()
        for worker in self.consumers:
            worker.stopping.set()
        for worker in self.consumers:
            worker.join(60)

    def _unstruck(self, faults: Faults) -> list[str]:
        if self._minutes < _ALL_KINDS_MINUTES:
            return []
        return [f"no fault of this kind was struck: {kind}" for kind, count in faults.struck.items() if not count]

    # --- what it says ---------------------------------------------------------------------------

    def _say_minute(self, minute: int, faults: Faults) -> None:
        sent, acknowledged, taken = self.history.counts()
        struck = ", ".join(f"{kind} {count}" for kind, count in faults.struck.items() if count)
        _say(f"minute {minute}: {sent} sent, {acknowledged} acknowledged, {taken} taken; {struck or 'no fault yet'}")

    def _say_table(self, found: dict[str, list[str]], faults: Faults, broken: list[str]) -> None:
        rows = [*self._load_rows(found, broken), *self._fault_rows(faults), ("promises broken", str(len(broken)))]
        width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
        for name, value in rows:
            _say(f"| {name:<{width}} | {value:>{value_width}} |")
        for kind, why in sorted(faults.impossible.items()):
            _say(f"NOT STRUCK IN THIS RUN: {kind}: {why}")
        for sentence in broken[:_SHOWN_MAX]:
            _say(f"  {sentence}")
        results = Path(".results")
        results.mkdir(exist_ok=True)
        kept = {"minutes": self._minutes, **{name.strip(): value for name, value in rows}}
        (results / "soak.json").write_text(json.dumps(kept, indent=1) + "\n")

    def _load_rows(self, found: dict[str, list[str]], broken: list[str]) -> Iterator[tuple[str, str]]:
        history = self.history
        sent, acknowledged, taken = history.counts()
        yield "sent", str(sent)
        yield "acknowledged", str(acknowledged)
        yield "given up by a producer", str(len(history.failed))
        yield "never answered", str(sent - acknowledged - len(history.failed))
        yield "stored", str(sum(map(len, found.values())))
        again = {topic: len(names) - len(set(names)) for topic, names in found.items()}
        yield "stored twice, without deduplication", str(again[TOPIC])
        yield "stored twice, with deduplication", str(again[ONCE_TOPIC])
        yield "lost", str(sum("is gone" in sentence for sentence in broken))
        yield "taken by consumers", str(taken)
        for name, subscription in history.subscriptions.items():
            count = len(subscription.taken)
            yield (
                f"  {name}: taken, of these again",
                f"{count}, {count - len({one.name for one in subscription.taken})}",
            )
            takers = Counter(each.consumer for each in subscription.taken)
            for consumer in subscription.consumers if len(subscription.consumers) > 1 else ():
                yield f"    by {consumer}", str(takers[consumer])
        windows = calm_windows(history.samples, history.disturbances)
        yield "calm windows, together", f"{len(windows)}, {sum(each.ended_s - each.began_s for each in windows):.0f} s"
        yield "errors that consumers were told", str(len(history.mishaps))
        for what, count in Counter(each.what for each in history.mishaps).most_common(5):
            yield f"  {what[:60]}", str(count)

    def _fault_rows(self, faults: Faults) -> Iterator[tuple[str, str]]:
        for kind, count in sorted({**faults.struck, "two at a time": faults.overlaps}.items()):
            pause = f", no receipt for {self._pauses_s[kind]:.1f} s" if kind in self._pauses_s else ""
            yield f"fault: {kind}", f"{count}{pause}"
        yield "bundles that the broker said it lost with its session", str(faults.bundles_lost)
        for name, count in sorted(faults.ended_by_themselves.items()):
            yield f"ended by itself: {name}", str(count)


def _deduplicate(web_url: str) -> None:
    namespace = f"{web_url}/admin/v2/namespaces/{ONCE_TOPIC.partition('://')[2].rpartition('/')[0]}"
    assert httpx.put(namespace, json={}, timeout=30).status_code == 204
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{namespace}/deduplication", content="true", headers=headers, timeout=30)
    assert answer.status_code == 204, answer.text


@contextmanager
def _small_disk(directory: Path) -> Iterator[Path | None]:
    """A bookie's directory on a file system of 96 MB; None where mounting is not allowed."""
    directory.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(directory)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
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
    parser.add_argument(
        "--links", action=argparse.BooleanOptionalAction, default=True, help="links that are cut and slowed"
    )
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
        assert cluster.broker is not None
        _deduplicate(cluster.broker.web_url)
        soak = Soak(cluster, random, options.minutes)
        faults = Faults(
            cluster,
            random,
            soak.history,
            small_disk=small,
            consumers=soak.consumers,
            links=links,
            ensemble=ensemble,
        )
        return soak.run(faults)


if __name__ == "__main__":
    sys.exit(main())
