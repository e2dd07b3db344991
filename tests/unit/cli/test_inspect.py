# SPDX-License-Identifier: Apache-2.0
"""What is in a file of a bookie is told whatever it is called and wherever it breaks."""

import asyncio
from pathlib import Path

import pytest

from magnetar.bookie.entry_log_format import LogHeader, checksum_seed, encode_header, encode_record
from magnetar.cli.inspect import inspect_entry_log, inspect_journal
from magnetar.errors import Damaged

pytestmark = pytest.mark.feature("F-BKS-02")


def _lines(file: Path) -> list[str]:
    said: list[str] = []
    asyncio.run(inspect_entry_log(str(file), said.append))
    return said


def _entry(entry_id: int) -> bytes:
    return (7).to_bytes(8, "big") + entry_id.to_bytes(8, "big") + b"body"


def _log(log_id: int, entries: int) -> bytes:
    data = encode_header(LogHeader(log_id, 0, 0))
    for i in range(entries):
        head, tail = encode_record(checksum_seed(log_id), len(data), _entry(i))
        data += head + tail
    return data


def test_a_copy_of_an_entry_log_is_read_under_any_name(tmp_path: Path) -> None:
    file = tmp_path / "saved-from-bookie-2"
    file.write_bytes(_log(3, 2))
    said = _lines(file)
    assert said[0] == "entry log 3, not finished"
    assert ["ledger 7 entry 0" in said[1], "ledger 7 entry 1" in said[2], len(said)] == [True, True, 3]


def test_where_an_entry_log_breaks_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "3.log"
    file.write_bytes(_log(3, 2)[:-3])
    assert _lines(file)[-1].startswith("no entry at byte ")
    file.write_bytes(b"")
    assert _lines(file)[0] == "no header: damaged, cut off, or never written"
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"#!/bin/sh\n" * 100)
    with pytest.raises(Damaged, match="does not begin as an entry log does"):
        _lines(foreign)
    with pytest.raises(Damaged, match="does not begin as a journal does"):
        asyncio.run(inspect_journal(str(foreign), print))
