# SPDX-License-Identifier: Apache-2.0
"""Records: changes meet, none is lost, and what we do not know stays."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.admin.records import Records
from magnetar.errors import DamagedRecord, NoRecord
from magnetar.metadata.memory import MemoryStore


def adding(number: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda value: {**value, str(number): number}


def test_changes_that_meet_are_all_made() -> None:
    async def scenario() -> dict[str, Any] | None:
        records = Records(MemoryStore())
        await records.create("/r", {"unknown": {"kept": True}})
        await asyncio.gather(*(records.update("/r", adding(n)) for n in range(5)))
        return await records.read("/r")

    found = asyncio.run(scenario())
    assert found == {"unknown": {"kept": True}, **{str(n): n for n in range(5)}}


def test_what_is_absent_is_made_only_when_asked() -> None:
    async def scenario() -> None:
        records = Records(MemoryStore())
        with pytest.raises(NoRecord):
            await records.update("/r", lambda value: value)
        assert await records.update("/r", lambda value: {**value, "a": 1}, create=True) == {"a": 1}
        assert not await records.create("/r", {})
        assert await records.delete("/r")
        assert not await records.delete("/r")

    asyncio.run(scenario())


@pytest.mark.parametrize("stored", [b"not json", b"[1]", b"7"])
def test_a_record_that_cannot_be_read_says_so(stored: bytes) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await store.put("/r", stored)
        with pytest.raises(DamagedRecord):
            await Records(store).read("/r")

    asyncio.run(scenario())
