# SPDX-License-Identifier: Apache-2.0
"""Metadata moved between any two stores, and everything that may be wrong with the file in between."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from magnetar.errors import DamagedRecord, MetadataError, Refused
from magnetar.metadata.memory import MemoryTree
from magnetar.metadata.store import MetadataStore
from magnetar.metadata.transfer import (
    checked,
    differences,
    export_records,
    following,
    import_records,
    raise_sequence,
    store_differences,
    walk,
)
from tests.contracts.metadata_stores import PLACES

RECORDS = {
    "/admin/clusters/east": b'{"serviceUrl": "http://h:8080"}',
    "/ledgers/00/0000/L0001": bytes(range(256)),
    "/ledgers/00/0000/L0001-x": b"sorts between the record and what lies below it",
    "/ledgers/00/0000/L0001/deeper": b"",
    "/schemas/ünï": b"wert",
}


async def _fill(store: MetadataStore) -> None:
    for path, value in RECORDS.items():
        await store.put(path, value)
    await store.put("/loadbalance/brokers/b:8080", b"alive", ephemeral=True)
    for _ in range(5):
        await store.put("/ledgers/idgen/ID-", b"", ephemeral=True, sequential=True)


@pytest.mark.parametrize(("source", "target"), list(pairwise([*sorted(PLACES), sorted(PLACES)[0]])))
@pytest.mark.feature("B-24")
def test_everything_goes_from_any_store_to_any_other(
    source: str, target: str, tmp_path: Path, loop_run: Callable[[Any], Any]
) -> None:
    async def scenario() -> None:
        async with PLACES[source](tmp_path / "s") as one, PLACES[target](tmp_path / "t") as two:
            here, there = await one.session(), await two.session()
            await _fill(here)
            lines: list[bytes] = []
            moved = await export_records(here, lines.append, ["/ledgers/idgen", "/not/there"], 1)
            assert moved.sequences == 1
            assert moved.left_out == 6
            used = await following(here, "/ledgers/idgen")
            put = await import_records(there, lambda: lines, "file")
            assert (put.records, put.sequences) == (moved.records, 1)
            assert {path: record.value async for path, record in walk(there) if path in RECORDS} == RECORDS
            assert await differences(there, lines, "file") == []
            assert await store_differences(here, there) == []
            # A number that was given there is never given here again.
            assert await following(there, "/ledgers/idgen") >= used - 1
            again = await import_records(there, lambda: lines, "file", merge=True)
            assert (again.records, again.left_out) == (0, put.records)

    (tmp_path / "s").mkdir()
    (tmp_path / "t").mkdir()
    loop_run(scenario())


def test_an_import_never_overwrites(loop_run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        source, target = MemoryTree().open_session(), MemoryTree().open_session()
        await _fill(source)
        lines: list[bytes] = []
        await export_records(source, lines.append, [], 1)
        await target.put("/schemas", b"mine")
        with pytest.raises(Refused, match=r"not empty \(it has /schemas\)"):
            await import_records(target, lambda: lines, "file")
        assert await target.children("/") == ["schemas"]
        with pytest.raises(MetadataError, match="/schemas is in the store with another value"):
            await import_records(target, lambda: lines, "file", merge=True)
        record = await target.get("/schemas")
        assert record is not None
        assert record.value == b"mine"

    loop_run(scenario())


def test_differences_are_named(loop_run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        source = MemoryTree().open_session()
        await _fill(source)
        lines: list[bytes] = []
        await export_records(source, lines.append, [], 1)
        await source.put("/schemas/ünï", b"other")
        await source.delete("/ledgers/00/0000/L0001/deeper")
        await source.put("/ledgers/00/0000/L0001.", b"new")
        assert {(each.path, each.what) for each in await differences(source, lines, "file")} == {
            ("/schemas/ünï", "has another value in the store"),
            ("/ledgers/00/0000/L0001/deeper", "is missing in the store"),
            ("/ledgers/00/0000/L0001.", "is in the store only"),
        }
        other = MemoryTree().open_session()
        await import_records(other, lambda: lines, "file")
        assert {(each.path, each.what) for each in await store_differences(other, source)} == {
            ("/schemas/ünï", "has another value in the second store"),
            ("/ledgers/00/0000/L0001/deeper", "is in the first store only"),
            ("/ledgers/00/0000/L0001.", "is in the second store only"),
        }

    loop_run(scenario())


def test_a_file_that_is_not_what_was_written_is_refused_and_nothing_is_changed(loop_run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        source = MemoryTree().open_session()
        await _fill(source)
        lines: list[bytes] = []
        await export_records(source, lines.append, ["/ledgers/idgen"], 1)
        newer = json.dumps({**json.loads(lines[0]), "version": 2}).encode()
        foreign = json.dumps({"format": "other", "version": 1}).encode()
        middle = len(lines) // 2
        bad: list[tuple[list[bytes], str]] = [
            ([newer, *lines[1:]], "line 1 has version 2"),
            ([foreign, *lines[1:]], "line 1 is not an export"),
            (lines[:-1], "ends without its last line"),
            ([], "ends without its last line"),
            ([*lines[:middle], *lines[middle + 1 :]], "tells of other lines"),
            ([*lines[:middle], lines[middle], *lines[middle:]], "tells of other lines"),
            ([*lines, lines[1]], "comes after the end"),
            ([*lines[:2], b"[]\n", *lines[3:]], "line 3 is damaged"),
            ([*lines[:2], b"{}\n", *lines[3:]], "line 3 is damaged"),
        ]
        for position in range(0, len(lines[2]) - 1, 3):
            broken = bytearray(lines[2])
            broken[position] ^= 1
            bad.append(([*lines[:2], bytes(broken), *lines[3:]], "damaged|other lines"))
        for damaged, reason in bad:
            target = MemoryTree().open_session()
            with pytest.raises(DamagedRecord, match=reason):
                await import_records(target, lambda damaged=damaged: damaged, "file")  # type: ignore[misc]
            assert await target.children("/") == []
        assert len(list(checked(lines, "file"))) == len(lines) - 1

    loop_run(scenario())


def test_sequences_are_raised_and_never_lowered(loop_run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        store = MemoryTree().open_session()
        await raise_sequence(store, "/p", 517)
        first = await following(store, "/p")
        assert first >= 517
        await raise_sequence(store, "/p", 3)
        assert await following(store, "/p") > first

    loop_run(scenario())
