# SPDX-License-Identifier: Apache-2.0
"""Bookies that lose their disks, are lost for good, or are new: what the cluster does about each by itself."""

import asyncio
import json
import urllib.request
from pathlib import Path

import pulsar
import pytest

from magnetar.errors import NotEnoughBookies
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.record import LedgerRecord
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.cluster import Cluster, RoleProcess
from tests.conftest import Eventually
from tests.faults.ledger_side import Told, append, body_of, created, ledgers_of, recovered, until
from tests.faults.test_kill_9 import QUIET, Publishing, read_everything
from tests.faults.test_storage_processes import bookie_id, code_of_add, emptied, is_denied, named


async def records(ledgers: Ledgers) -> list[LedgerRecord]:
    return [(await ledgers.catalog.load(ledger_id)).record async for ledger_id in ledgers.catalog.ledger_ids()]


@pytest.mark.feature("F-REC-13", "F-PRB-19")
def test_an_emptied_bookie_fetches_what_it_lost_and_then_doubts_no_more(tmp_path: Path) -> None:
    """Nobody else repairs here: the bookie reads in the metadata what it must hold, and asks the other copies."""

    async def main(cluster: Cluster) -> None:
        async with ledgers_of(cluster) as ledgers:
            closed, opened = Told(), Told()
            first = await created(ledgers, closed)
            await append(first, closed, 30)
            await first.close()
            second = await created(ledgers, opened)
            await append(second, opened, 7)
            victim = first.known.record.last_segment.ensemble[0]
            await emptied(cluster, named(cluster, victim))

            async def denies_what_never_was() -> bool:
                ends = ((first.ledger_id, 30), (second.ledger_id, 7))
                return all([await is_denied(ledgers, victim, *end) for end in ends])

            await until(denies_what_never_was)
            for writer, entries in ((first, 30), (second, 7)):
                for entry_id in range(entries):
                    entry = await ledgers.channels(victim).read(writer.ledger_id, entry_id)
                    assert entry.endswith(body_of(entry_id))
                assert await code_of_add(ledgers, victim, writer.ledger_id, entries) == ReturnCode.FENCED
                assert await recovered(ledgers, writer.ledger_id) == entries - 1
            assert "ledgers in limbo are whole again" in named(cluster, victim).log_tail()

    settings = {"autoRecoveryDaemonEnabled": "false", "MAGNETAR_BOOKIE_LIMBO_CHECK_INTERVAL_MS": "200"}
    with Cluster(tmp_path, broker=False, environment=settings) as cluster:
        asyncio.run(main(cluster))


async def a_bookie_of(cluster: Cluster, log: str) -> str:
    """One that holds the ledger which is written now."""
    async with ledgers_of(cluster) as ledgers:
        own = [record for record in await records(ledgers) if log.encode() in (record.custom or {}).values()]
    return next(record for record in own if record.is_open).last_segment.ensemble[0]


@pytest.mark.feature("F-HA-04")
def test_a_lost_bookie_is_replaced_at_once_and_its_copies_are_restored_later(
    tmp_path: Path, eventually: Eventually
) -> None:
    """A producer and a consumer notice nothing; in the end no ledger names the lost bookie any more."""
    topic = "persistent://public/default/lost"
    settings = {
        "managedLedgerDefaultEnsembleSize": "3",
        "managedLedgerDefaultWriteQuorum": "3",
        "managedLedgerDefaultAckQuorum": "2",
        "bookkeeperClientTimeoutInSeconds": "2",
        "openLedgerRereplicationGracePeriod": "1000",
        "metadataStoreSessionTimeoutMillis": "4000",
        "MAGNETAR_REPAIR_RETRY_DELAY_MS": "200",
    }

    async def restored(cluster: Cluster, lost: str) -> list[LedgerRecord]:
        async with ledgers_of(cluster) as ledgers:

            async def nobody_names_it() -> bool:
                return all(lost not in record.bookies() for record in await records(ledgers))

            await until(nobody_names_it)
            return await records(ledgers)

    with Cluster(tmp_path, bookies=4, environment=settings) as cluster:
        client = pulsar.Client(cluster.service_url, operation_timeout_seconds=60, logger=QUIET)
        client.subscribe(topic, "keeper").close()
        publishing = Publishing(client, topic)
        try:
            eventually(lambda: len(publishing.acknowledged) >= 300)
            victim = named(cluster, asyncio.run(a_bookie_of(cluster, "public/default/persistent/lost")))
            victim.kill()
            before = len(publishing.acknowledged)
            eventually(lambda: len(publishing.acknowledged) >= before + 1_000)
        finally:
            publishing.stop()
        publishing.finish()
        # Every send has a receipt, and what is read is what was sent, once and in order: no client had to send again.
        assert publishing.acknowledged.keys() == set(publishing.sent)
        assert read_everything(client, topic) == publishing.sent
        assert asyncio.run(restored(cluster, bookie_id(victim)))
        assert read_everything(client, topic) == publishing.sent
        client.close()


def data_bytes(bookie: RoleProcess) -> dict[str, int]:
    """The entry logs of a bookie and their sizes."""
    logs = (bookie.data_directory / "ledgers" / "current").glob("*.log")
    return {log.name: log.stat().st_size for log in logs}


@pytest.mark.feature("F-PLAT-05")
def test_a_new_bookie_takes_new_ledgers_at_once_and_old_data_stays_where_it_is(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        *old, new = cluster.bookies
        assert new.stop() == 0
        async with ledgers_of(cluster) as ledgers:

            async def is_gone() -> bool:
                try:
                    await (await created(ledgers, Told())).close()
                except NotEnoughBookies:
                    return True
                return False

            await until(is_gone)
            told = Told()
            first = await created(ledgers, told, size=2, write=2, ack=2)
            await append(first, told, 50)
            await first.close()
            held = [data_bytes(bookie) for bookie in old]
            new.start()

            async def is_used() -> bool:
                try:
                    writer = await created(ledgers, Told())
                except NotEnoughBookies:
                    return False
                return bookie_id(new) in writer.known.record.last_segment.ensemble

            await until(is_used)
            assert bookie_id(new) not in (await ledgers.catalog.load(first.ledger_id)).record.bookies()
            assert [data_bytes(bookie) for bookie in old] == held
            assert await recovered(ledgers, first.ledger_id) == 49

    with Cluster(tmp_path, broker=False) as cluster:
        asyncio.run(main(cluster))


def asked(cluster: Cluster, method: str, path: str, body: object) -> None:
    assert cluster.broker is not None
    said = cluster.broker.said
    request = urllib.request.Request(
        f"{said['webServiceUrl'] if 'webServiceUrl' in said else said['webUrl']}/admin/v2/{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status in (200, 204)


def misplaced_ledgers(cluster: Cluster) -> int:
    """What the auditor's process says, whichever that is."""
    found = 0
    for bookie in cluster.bookies:
        with urllib.request.urlopen(f"http://{bookie.said['httpserver']}/metrics") as answer:
            name = "auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY "
            found += sum(int(line.split()[1]) for line in answer.read().decode().splitlines() if line.startswith(name))
    return found


@pytest.mark.feature("F-ISO-03")
def test_a_namespaces_ledgers_stay_in_its_group_and_the_auditor_tells_of_others(
    tmp_path: Path, eventually: Eventually
) -> None:
    settings = {
        "managedLedgerDefaultEnsembleSize": "2",
        "managedLedgerDefaultWriteQuorum": "2",
        "managedLedgerDefaultAckQuorum": "2",
        "managedLedgerMaxEntriesPerLedger": "5",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "auditorPeriodicPlacementPolicyCheckInterval": "1",
    }

    async def of_topic(cluster: Cluster, topic: str) -> list[LedgerRecord]:
        async with ledgers_of(cluster) as ledgers:
            found = [record for record in await records(ledgers) if record.custom]
        wanted = b"public/isolated/persistent/" + topic.encode()
        return [record for record in found if (record.custom or {}).get("pulsar/managed-ledger") == wanted]

    with Cluster(tmp_path, bookies=4, environment=settings) as cluster:
        hot = [bookie_id(bookie) for bookie in cluster.bookies[:2]]
        for number, bookie in enumerate(cluster.bookies):
            group, rack = "hot" if number < 2 else "cold", f"/rack-{number % 2}"
            asked(cluster, "POST", f"bookies/racks-info/{bookie_id(bookie)}?group={group}", {"rack": rack})
        asked(cluster, "PUT", "namespaces/public/isolated", {})
        affinity = {"bookkeeperAffinityGroupPrimary": "hot", "bookkeeperAffinityGroupSecondary": ""}
        asked(cluster, "POST", "namespaces/public/isolated/persistence/bookieAffinity", affinity)
        client = pulsar.Client(cluster.service_url, operation_timeout_seconds=60, logger=QUIET)
        client.subscribe("persistent://public/isolated/kept", "keeper").close()
        producer = client.create_producer("persistent://public/isolated/kept", batching_enabled=False)
        for number in range(40):
            producer.send(b"%d" % number)
        kept = asyncio.run(of_topic(cluster, "kept"))
        assert len(kept) >= 5, "a ledger for every five messages"
        assert {bookie for record in kept for bookie in record.bookies()} == set(hot)
        assert misplaced_ledgers(cluster) == 0
        # The operator moves a bookie to another group: its ledgers are where they should not be, and that is said.
        asked(cluster, "POST", f"bookies/racks-info/{hot[0]}?group=cold", {"rack": "/rack-0"})
        eventually(lambda: misplaced_ledgers(cluster) >= 5)
        client.close()
