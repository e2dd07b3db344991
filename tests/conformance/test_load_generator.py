# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.perf` against a standalone: each client publishes, receives and measures."""

import uuid

import pytest

from benchmarks import perf
from tests.processes import StandaloneProcess


@pytest.mark.parametrize("client", ["raw", "official", "own"])
def test_each_client_makes_each_load(
    standalone: StandaloneProcess, client: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"load-{uuid.uuid4()}"

    def ran(*words: str) -> list[str]:
        assert perf.main([*words, "--client", client, "-u", standalone.service_url]) == 0
        return capsys.readouterr().out.splitlines()

    first, *_, last = ran("produce", name, "-m", "600", "-n", "2", "-bm", "20")
    assert first.startswith("closed loop")
    assert last.startswith("Aggregated: published 600 messages")
    *_, last = ran("consume", name, "-m", "600", "-sp", "Earliest", "-st", "Shared", "-n", "2")
    assert last.startswith("Aggregated: received 600 messages")
    first, *_, published, received = ran("latency", name, "-t", "2", "-r", "400", "-m", "200", "-ss", "timed")
    assert first.startswith("open loop: 400 messages a second")
    assert published.startswith("Aggregated: published 200 messages")
    assert received.startswith("Aggregated: end to end 200 messages")
    assert " p99.9 " in received
