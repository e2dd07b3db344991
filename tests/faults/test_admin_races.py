# SPDX-License-Identifier: Apache-2.0
"""Administration that races with itself and with a producer, while the process is killed: nothing stays half done."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event
from typing import Final

import httpx
import pulsar

from tests.faults.test_kill_9 import QUIET
from tests.processes import StandaloneProcess

ROUNDS: Final = 4
TOPICS: Final = ("one", "two")
# What an answer may be while others do the opposite; a 500 is a bug.
EXPECTED: Final = {200, 204, 307, 404, 405, 409, 412, 503}


def asked(standalone: StandaloneProcess, verb: str, path: str, body: object = None) -> int | None:
    """The status; None where the process died over it."""
    url = f"{standalone.web_url}/admin/v2/{path}"
    try:
        return httpx.request(verb, url, json=body, timeout=30).status_code
    except httpx.TransportError:
        return None


def requests(name: str) -> list[tuple[str, str, object]]:
    topic, parts = f"persistent/public/default/{name}", f"persistent/public/default/{name}-parts"
    return [
        ("PUT", topic, None),
        ("DELETE", f"{topic}?force=true", None),
        ("PUT", f"{topic}/unload", None),
        ("PUT", f"{topic}/compaction", None),
        ("PUT", f"{topic}/subscription/s", None),
        ("DELETE", f"{topic}/subscription/s?force=true", None),
        ("PUT", f"{parts}/partitions", 2),
        ("POST", f"{parts}/partitions", 4),
        ("DELETE", f"{parts}/partitions?force=true", None),
    ]


def test_what_races_and_is_killed_can_be_done_again(tmp_path: Path) -> None:
    """F155: afterwards every topic can be deleted, made anew and used, and has nothing of its earlier lives."""
    chance = Random(3)
    statuses: set[int] = set()
    with StandaloneProcess(tmp_path) as standalone, ThreadPoolExecutor(12) as pool:
        for _ in range(ROUNDS):
            stop, begun = Event(), Event()

            def race(name: str, seed: int, stop: Event, begun: Event) -> None:
                order = Random(seed)
                for _ in range(200):
                    if stop.is_set():
                        return
                    status = asked(standalone, *order.choice(requests(name)))
                    if status is not None:
                        statuses.add(status)
                        begun.set()

            racing = [
                pool.submit(race, name, chance.randrange(1 << 30), stop, begun) for name in TOPICS for _ in range(4)
            ]
            producing = pool.submit(produce, standalone, stop)
            assert begun.wait(30)
            stop.wait(0.2 + chance.random() / 2)
            standalone.kill()
            stop.set()
            for each in (*racing, producing):
                each.result(60)
            standalone.start()
            for name in TOPICS:
                check_used_anew(standalone, name)
    assert statuses <= EXPECTED, statuses - EXPECTED


def produce(standalone: StandaloneProcess, stop: Event) -> None:
    client = pulsar.Client(standalone.service_url, operation_timeout_seconds=2, logger=QUIET)
    while not stop.is_set():
        try:
            producer = client.create_producer(f"persistent://public/default/{TOPICS[0]}", send_timeout_millis=1_000)
            producer.send(b"of an earlier life")
            producer.close()
        except pulsar.PulsarException:
            continue
    # Nobody is there any more to whom it could say goodbye.
    with suppress(pulsar.PulsarException):
        client.close()


def check_used_anew(standalone: StandaloneProcess, name: str) -> None:
    root = "persistent/public/default"
    for _ in range(2):
        assert asked(standalone, "DELETE", f"{root}/{name}?force=true") in (204, 404)
        assert asked(standalone, "DELETE", f"{root}/{name}-parts/partitions?force=true") in (204, 404)
    assert asked(standalone, "DELETE", f"{root}/{name}?force=true") == 404
    assert asked(standalone, "PUT", f"{root}/{name}") == 204
    assert asked(standalone, "PUT", f"{root}/{name}-parts/partitions", 3) == 204
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    for topic in (name, f"{name}-parts"):
        consumer = client.subscribe(
            f"persistent://public/default/{topic}", "anew", initial_position=pulsar.InitialPosition.Earliest
        )
        client.create_producer(f"persistent://public/default/{topic}").send(b"anew")
        assert consumer.receive(10_000).data() == b"anew"
    client.close()
