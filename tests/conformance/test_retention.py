# SPDX-License-Identifier: Apache-2.0
"""Backlog quotas as the official client meets them, on a broker that looks every second."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests.processes import StandaloneProcess

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    directory: Path = tmp_path_factory.mktemp("standalone")
    settings = directory / "broker.conf"
    settings.write_text(
        "backlogQuotaDefaultLimitBytes=20000\n"
        "backlogQuotaDefaultRetentionPolicy=producer_exception\n"
        "backlogQuotaCheckIntervalInSeconds=1\n"
    )
    with StandaloneProcess(directory, "--config", str(settings)) as process:
        yield process


def is_refused(client: pulsar.Client, topic: str) -> bool:
    try:
        client.create_producer(topic).close()
    except pulsar.ProducerBlockedQuotaExceededException:
        return True
    return False


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s, f"{what} did not happen"


@pytest.mark.feature("F-RET-12")
def test_a_backlog_over_its_quota_refuses_producers_until_it_is_consumed(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(30):
        producer.send_async(bytes(1_000), lambda *_: None)
    producer.flush()
    producer.close()
    wait_until("the refusal", lambda: is_refused(client, topic))
    message = None
    for _ in range(30):
        message = consumer.receive(10_000)
    consumer.acknowledge_cumulative(message)
    wait_until("the return of producers", lambda: not is_refused(client, topic))
