# SPDX-License-Identifier: Apache-2.0
"""Levers of reliability against a crash: waiting for receipts, syncing the journal, acking by hand.

Each is moved by itself and keeps exactly its own promise, whatever the others are set to.
"""

import json
import urllib.request
from pathlib import Path

import pulsar
import pytest

from tests.conftest import Eventually
from tests.processes import StandaloneProcess

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
EACH = 40
# Receipts that came before the kill, where nobody waits for each.
FEW = 5


def drain(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(20_000) for _ in range(count)]


@pytest.mark.feature("F-PLAT-15")
@pytest.mark.parametrize("journal_sync", [True, False])
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("acks", [True, False])
def test_a_killed_standalone_keeps_what_each_lever_promises(
    tmp_path: Path, eventually: Eventually, journal_sync: bool, waits: bool, acks: bool
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"journalSyncData={str(journal_sync).lower()}\n")
    topic = "persistent://public/default/levers"
    promised: list[str] = []
    with StandaloneProcess(tmp_path / "run", "--config", str(config)) as standalone:
        client = pulsar.Client(standalone.service_url, operation_timeout_seconds=60, logger=QUIET)
        consumer = client.subscribe(topic, "levers", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(topic, send_timeout_millis=0)
        for number in range(EACH):
            name = f"m-{number}"
            if waits:
                producer.send(name.encode())
                promised.append(name)
            else:
                producer.send_async(
                    name.encode(),
                    lambda result, _, name=name: promised.append(name) if result == pulsar.Result.Ok else None,
                )
        eventually(lambda: len(promised) >= FEW)
        if waits:
            taken = drain(consumer, EACH)
            for message in taken if acks else ():
                consumer.acknowledge(message)
        if acks and waits:
            # Acks are kept when the cursor is: this is the moment from which they are promised.
            eventually(lambda: mark_delete(standalone, "levers") == EACH - 1)
        # One that did not wait is killed with receipts under way: only those that came are a promise.
        standalone.kill()
        held = list(promised)
        assert len(held) >= FEW
        standalone.start()
        client.close()
        client = pulsar.Client(standalone.service_url, operation_timeout_seconds=60, logger=QUIET)
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        kept = []
        while reader.has_message_available():
            kept.append(reader.read_next(20_000).data().decode())
        assert set(held) <= set(kept), "a receipt was given for a message that is lost"
        again = client.subscribe(topic, "levers", initial_position=pulsar.InitialPosition.Earliest)
        if acks and waits:
            with pytest.raises(pulsar.Timeout):
                again.receive(300)
        else:
            back = {message.data().decode() for message in drain(again, len(kept))}
            assert set(held) <= back, "a message that nobody acknowledged did not come again"
        client.close()


def mark_delete(standalone: StandaloneProcess, subscription: str) -> int:
    """The last entry that a subscription has acknowledged durably, without gaps."""
    path = f"{standalone.web_url}/admin/v2/persistent/public/default/levers/internalStats"
    with urllib.request.urlopen(path, timeout=20) as answer:
        stats = json.load(answer)
    cursor = stats["cursors"][subscription]
    return int(cursor["markDeletePosition"].split(":")[1]) if cursor["state"] != "NoLedger" else -1
