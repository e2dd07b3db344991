# SPDX-License-Identifier: Apache-2.0
"""Orphans are found, and nothing that anyone still needs is taken for one.

Carries.
"""

import pytest

from magnetar.managed_ledger.orphans import Orphan, orphans
from magnetar.wire.bookkeeper.digest import DigestType
from tests.conftest import RunOnLoop
from tests.unit.ledger.cluster import Confirmations
from tests.unit.managed_ledger.owners import NAME, Owner, World


async def stray(owner: Owner, custom: dict[str, bytes]) -> int:
    writer = await owner.client.ledgers.create(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        digest=DigestType.CRC32C,
        password=b"",
        custom_metadata=custom,
        listener=Confirmations(),
    )
    return writer.ledger_id


@pytest.mark.feature("F-RET-13", "F-ML-11")
def test_only_ledgers_that_no_record_names_are_orphans(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=5)
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        for turn in range(4):
            owner.publisher.append_many(6, f"t{turn}")
            await owner.publisher.rest()
        cursor.ack(min(owner.publisher.persisted))
        await cursor.flush()

        async def found() -> list[Orphan]:
            return [orphan async for orphan in orphans(owner.store, owner.client.ledgers)]

        assert await found() == []
        claims = {"component": b"managed-ledger", "pulsar/managed-ledger": NAME.encode()}
        of_log = await stray(owner, claims)
        of_cursor = await stray(owner, {**claims, "pulsar/cursor": b"sub"})
        of_no_one = await stray(owner, {**claims, "pulsar/managed-ledger": b"gone/ns/persistent/t"})
        await stray(owner, {"component": b"schema"})
        await stray(owner, {})
        assert await found() == [
            Orphan(of_log, NAME, ""),
            Orphan(of_cursor, NAME, "sub"),
            Orphan(of_no_one, "gone/ns/persistent/t", ""),
        ]
        await owner.close()
        world.check()

    loop_run(scenario())
