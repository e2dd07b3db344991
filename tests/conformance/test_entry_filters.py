# SPDX-License-Identifier: Apache-2.0
"""Entry filters of an operator, chosen by policies and met by the official client."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.processes import StandaloneProcess

# As an operator installs it: a module beside the broker, with what each class decides by the message's properties.
MODULE = '''
from magnetar.broker.dispatch.hooks import Verdict


class Sorting:
    """Says what the message asks for: no, and the first time not now."""

    def __init__(self):
        self.seen = set()

    def verdict(self, entry, position, metadata, properties):
        asked = {pair.key: pair.value for pair in metadata.properties}
        if asked.get("kind") == "unwanted" and properties.get("wants") != "everything":
            return Verdict.REJECT
        if asked.get("kind") == "later" and position not in self.seen:
            self.seen.add(position)
            return Verdict.RESCHEDULE
        return Verdict.ACCEPT


class Broken:
    def verdict(self, entry, position, metadata, properties):
        raise RuntimeError("the operator's own mistake")
'''


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    directory: Path = tmp_path_factory.mktemp("filters")
    (directory / "house_filters.py").write_text(MODULE)
    settings = directory / "broker.conf"
    settings.write_text(
        "broker.entry_filter_classes=sorting=house_filters:Sorting,broken=house_filters:Broken\n"
        "allowOverrideEntryFilters=true\n"
        "dispatcherEntryFilterRescheduledMessageDelay=200\n"
    )
    environment = {"PYTHONPATH": str(directory)}
    with StandaloneProcess(directory, "--config", str(settings), environment=environment) as process:
        yield process


def _ask(standalone: StandaloneProcess, verb: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{standalone.web_url}/admin/v2/{path}", data, method=verb)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def _counts(standalone: StandaloneProcess, topic: str, subscription: str) -> tuple[int, ...]:
    stats = _ask(standalone, "GET", f"persistent/public/default/{topic}/stats")["subscriptions"][subscription]
    names = ("Processed", "Accepted", "Rejected", "Rescheduled")
    return tuple(stats[f"filter{name}MsgCount"] for name in names)


@pytest.mark.feature("B-14")
def test_a_topics_filter_drops_and_puts_off(
    standalone: StandaloneProcess, client: pulsar.Client, eventually: Callable[..., None]
) -> None:
    """What is rejected is acknowledged, what is put off comes later."""
    consumer = client.subscribe("sorted", "s", pulsar.ConsumerType.Shared)
    everything = client.subscribe("sorted", "all")
    wants = "persistent/public/default/sorted/subscription/all/properties"
    _ask(standalone, "PUT", wants, {"wants": "everything"})
    path = "persistent/public/default/sorted/entryFilters"
    _ask(standalone, "POST", path, {"entryFilterNames": "sorting"})
    assert _ask(standalone, "GET", path) == {"entryFilterNames": "sorting"}
    producer = client.create_producer("sorted", batching_enabled=False)
    for number, kind in enumerate(["plain", "unwanted", "later", "plain"]):
        producer.send(b"%d" % number, properties={"kind": kind})
    received = [consumer.receive(timeout_millis=20_000) for _ in range(3)]
    assert [message.data() for message in received] == [b"0", b"3", b"2"], "what is put off comes later"
    for message in received:
        consumer.acknowledge(message)
    assert _counts(standalone, "sorted", "s") == (5, 3, 1, 1)
    assert [everything.receive(timeout_millis=20_000).data() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    _ask(standalone, "DELETE", path)
    producer.send(b"4", properties={"kind": "unwanted"})
    assert consumer.receive(timeout_millis=20_000).data() == b"4", "without the policy nothing is filtered"
    stats = "persistent/public/default/sorted/stats"
    eventually(lambda: _ask(standalone, "GET", stats)["subscriptions"]["s"]["msgBacklog"] == 1)


@pytest.mark.feature("B-14")
def test_names_choose_among_the_operators_filters_only(standalone: StandaloneProcess, client: pulsar.Client) -> None:
    for path in ("namespaces/public/default/entryFilters", "persistent/public/default/chosen/entryFilters"):
        client.create_producer("chosen").close()
        with pytest.raises(urllib.error.HTTPError) as refused:
            _ask(standalone, "POST", path, {"entryFilterNames": "os:system"})
        assert refused.value.code == 400
        assert b"no entry filter" in refused.value.read()


@pytest.mark.feature("B-14")
def test_a_filter_that_raises_loses_nothing(standalone: StandaloneProcess, client: pulsar.Client) -> None:
    consumer = client.subscribe("broken", "s")
    path = "persistent/public/default/broken/entryFilters"
    _ask(standalone, "POST", path, {"entryFilterNames": "broken"})
    client.create_producer("broken").send(b"kept")
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=300)
    assert _counts(standalone, "broken", "s")[1] == 0
    _ask(standalone, "DELETE", path)
    assert consumer.receive(timeout_millis=20_000).data() == b"kept"
