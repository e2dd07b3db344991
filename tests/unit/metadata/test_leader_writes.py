# SPDX-License-Identifier: Apache-2.0
"""A prototype: every write goes through an elected leader, and a plain table that knows nothing but epochs stores it.

docs/decisions/0138 says why it is not more than this.
"""

import asyncio
from collections.abc import Callable

import pytest

from magnetar.metadata.coordination import Claim, Coordination
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.runtime.tasks import Tasks

LEADER, EPOCHS = "/leader", "/epoch"


class Table:
    """As any database could be: the one rule is that nobody writes in an epoch older than one it has seen."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.epoch = 0

    def write(self, epoch: int, path: str, value: bytes) -> bool:
        if epoch < self.epoch:
            return False
        self.epoch = epoch
        self.rows[path] = value
        return True


class Broker:
    """Forwards its writes to whoever leads; writes them itself when that is it."""

    def __init__(self, name: str, tree: MemoryTree, table: Table, crashes: list[BaseException]) -> None:
        self.store = MemoryStore(tree)
        self._tasks = Tasks(name, lambda _, error: crashes.append(error))
        self._table = table
        self.claim: Claim = Coordination(self.store, self._tasks).candidate(LEADER, name.encode(), epoch_path=EPOCHS)

    def write(self, path: str, value: bytes) -> bool:
        return self._table.write(self.claim.epoch, path, value)

    async def close(self) -> None:
        await self._tasks.close()
        await self.store.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition lies in several objects
            await asyncio.sleep(0)


@pytest.mark.feature("F-MD-20")
def test_of_two_that_believe_to_lead_only_the_newer_writes(loop_run: Callable[..., None]) -> None:
    async def scenario() -> None:
        tree, table, crashes = MemoryTree(), Table(), list[BaseException]()
        old, new = (Broker(name, tree, table, crashes) for name in ("old", "new"))
        await until(lambda: old.claim.is_held)
        assert old.write("/bundle", b"old")
        delayed = old.claim.epoch
        # The old leader's session ends, and it has not noticed: its last write is still on the way.
        old.store.expire_session()
        await until(lambda: new.claim.is_held)
        assert new.claim.epoch > delayed
        assert new.write("/bundle", b"new")
        assert not table.write(delayed, "/bundle", b"too late")
        assert table.rows == {"/bundle": b"new"}
        await old.close()
        await new.close()
        assert crashes == []

    loop_run(scenario())
