# SPDX-License-Identifier: Apache-2.0
"""Clusters that replicate to one another, killed at any time: each message once everywhere, in its sender's order."""

import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pulsar
import pytest

from tests.geo import Region, Regions, until

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
EARLIEST = pulsar.InitialPosition.Earliest
WAIT_MS = 60_000
ROUNDS = 4


@pytest.fixture
def regions(tmp_path: Path) -> Iterator[Regions]:
    # Cursors are saved as seldom as they may be, so that a killed cluster sends much again.
    settings = ("brokerDeduplicationEnabled=true", "managedLedgerCursorPositionFlushSeconds=60")
    with Regions(tmp_path, "east", "west", settings=settings) as regions:
        yield regions


class Sender(threading.Thread):
    """An official producer that sends one message after the other until it is told to stop."""

    def __init__(self, region: Region, topic: str) -> None:
        super().__init__(daemon=True)
        self.confirmed = 0
        self.error: Exception | None = None
        self._region = region
        self._topic = topic
        self._over = threading.Event()

    def run(self) -> None:
        client = pulsar.Client(self._region.service_url, logger=QUIET)
        try:
            producer = client.create_producer(
                self._topic, producer_name=f"of-{self._region.name}", send_timeout_millis=0, batching_enabled=False
            )
            while not self._over.is_set():
                producer.send(b"%s-%d" % (self._region.name.encode(), self.confirmed))
                self.confirmed += 1
            producer.close()
        except Exception as error:  # told by the test
            self.error = error
        finally:
            client.close()

    def end(self) -> int:
        self._over.set()
        self.join(WAIT_MS / 1000)
        assert self.error is None, self.error
        assert not self.is_alive()
        return self.confirmed


def _have_reached(senders: list[Sender], goals: list[int]) -> bool:
    return all(sender.confirmed >= goal for sender, goal in zip(senders, goals, strict=True))


@pytest.mark.feature("F-GEO-08", "F-GEO-09", "F-GEO-13")
def test_clusters_that_are_killed_send_everything_once(regions: Regions) -> None:
    """F169, F173: the producers of both have the same sequence ids."""
    topic, chance = regions.topic("killed"), random.Random(7)
    for region in regions.all:
        # What no subscription waits for would not be kept.
        client = pulsar.Client(region.service_url, logger=QUIET)
        client.subscribe(topic, "check", initial_position=EARLIEST)
        client.close()
    senders = [Sender(region, topic) for region in regions.all]
    for sender in senders:
        sender.start()
    for number in range(ROUNDS):
        region = regions.all[number % 2]
        goals = [sender.confirmed + chance.randrange(20, 60) for sender in senders]
        until(partial(_have_reached, senders, goals), "both go on sending")
        region.kill()
        region.start()
    sent = {region.name: sender.end() for region, sender in zip(regions.all, senders, strict=True)}
    for region in regions.all:
        client = pulsar.Client(region.service_url, logger=QUIET)
        consumer = client.subscribe(topic, "check", initial_position=EARLIEST)
        came: dict[str, list[int]] = {name: [] for name in sent}
        while sum(map(len, came.values())) < sum(sent.values()):
            origin, _, count = consumer.receive(WAIT_MS).data().decode().partition("-")
            came[origin].append(int(count))
        assert came == {name: list(range(count)) for name, count in sent.items()}
        with pytest.raises(pulsar.Timeout):
            consumer.receive(300)
        client.close()


@pytest.mark.feature("F-HA-12", "F-RSUB-01", "F-RSUB-06")
def test_a_lost_region_is_taken_over_without_loss(regions: Regions) -> None:
    """F178: its consumer had acknowledged up to a place; over there it goes on at or before that, without a gap."""
    east, west = regions.all
    topic, path = regions.topic("lost"), "persistent/geo/all/lost"
    client = pulsar.Client(east.service_url, logger=QUIET)
    consumer = client.subscribe(topic, "work", initial_position=EARLIEST, replicate_subscription_state_enabled=True)
    producer = client.create_producer(topic, batching_enabled=False)
    sent = 0

    def work() -> bool:
        """A few messages and their acknowledgements; whether the other region has followed."""
        nonlocal sent
        for _ in range(10):
            producer.send(b"%d" % sent)
            message = consumer.receive(WAIT_MS)
            assert message.data() == b"%d" % sent
            consumer.acknowledge(message)
            sent += 1
        shown = west.ask("GET", f"{path}/stats")["subscriptions"].get("work")
        return bool(shown) and shown["msgBacklog"] < sent / 2

    until(work, "the other region follows the subscription")
    for _ in range(15):
        producer.send(b"%d" % sent)
        sent += 1
    until(lambda: east.drained(topic, "west"), "everything sent is over there")
    east.kill()
    there = pulsar.Client(west.service_url, logger=QUIET)
    heir = there.subscribe(topic, "work", initial_position=EARLIEST, replicate_subscription_state_enabled=True)
    came = [int(heir.receive(WAIT_MS).data())]
    while came[-1] != sent - 1:
        came.append(int(heir.receive(WAIT_MS).data()))
    assert came == list(range(came[0], sent))
    assert 0 < came[0] <= sent - 15
    there.close()
    client.close()
