# SPDX-License-Identifier: Apache-2.0
"""How many disks, and what a machine is told at the start."""

import os
from pathlib import Path

import pytest

from magnetar.cli import machine
from magnetar.cli.machine import device_rotates, warn_of_disks
from magnetar.cli.sizing import DiskKind, Load, size
from magnetar.config.bookie import BookieSettings
from magnetar.errors import BadSetting
from magnetar.runtime.machine_advice import memory_sentences, rotating_journals, shared_disks, split_memory

GIB = 1024**3
DISK = DiskKind(write=200, read=200, size=1_000)


@pytest.mark.feature("F-DEP-11")
def test_journals_by_what_is_written_and_ledgers_by_what_is_read_and_kept() -> None:
    # 800 MB/s at 200 MB/s for each disk.
    assert size(Load(800), DISK)[:2] == (4, 4)
    assert size(Load(801), DISK).journals == 5
    assert size(Load(800, copies=2), DISK).journals == 8
    assert size(Load(800, read_from_disk=400), DISK)[:2] == (4, 6)
    # 100 MB/s for ten hours are 3,600 GB; a disk is filled to four fifths.
    assert size(Load(100, kept_hours=10), DISK)[:2] == (1, 5)
    assert size(Load(1), DISK)[:2] == (1, 1)


@pytest.mark.parametrize("load", [Load(0), Load(-1), Load(1, copies=0), Load(1, kept_hours=-1)])
def test_a_load_that_cannot_be_is_refused(load: Load) -> None:
    with pytest.raises(BadSetting):
        size(load, DISK)


@pytest.mark.feature("F-DEP-10")
@pytest.mark.parametrize("gib", [1, 2, 4, 16, 64, 512])
def test_memory_is_divided_between_system_process_and_page_cache(gib: int) -> None:
    split = split_memory(gib * GIB)
    assert sum(split) == gib * GIB
    assert min(GIB, gib * GIB // 2) <= split.system_bytes <= 2 * GIB
    assert abs(split.process_bytes - split.page_cache_bytes) <= 1


@pytest.mark.feature("F-DEP-10")
def test_the_split_is_said_at_the_start_and_too_much_is_warned_of() -> None:
    (said,) = memory_sentences(16 * GIB, {"entry cache": 2 * GIB, "reads under way": GIB})
    assert "2.0 GiB for the system, 7.0 GiB for this process, 7.0 GiB for the page cache" in said
    assert "up to 3.0 GiB (entry cache 2.0 GiB, reads under way 1.0 GiB)" in said
    _, warned = memory_sentences(4 * GIB, {"entry cache": 2 * GIB})
    assert "lower the caches" in warned


@pytest.mark.feature("F-DEP-09")
def test_journals_that_share_a_device_with_ledgers_are_warned_of() -> None:
    devices = {"/fast/journal": 1, "/slow/journal": 2, "/slow/ledgers": 2, "/other/ledgers": 3}
    ledgers = ("/slow/ledgers", "/other/ledgers")
    assert shared_disks(("/fast/journal",), ledgers, devices.get) == []
    (warned,) = shared_disks(("/fast/journal", "/slow/journal"), ledgers, devices.get)
    assert warned.startswith("journal /slow/journal and ledgers /slow/ledgers are on one device")
    assert shared_disks(("/gone",), ("/gone",), devices.get) == []


@pytest.mark.feature("F-TUN-09")
def test_a_synced_journal_on_a_rotating_disk_is_warned_of() -> None:
    rotates = {"/hdd/journal": True, "/ssd/journal": False}
    (warned,) = rotating_journals(("/hdd/journal", "/ssd/journal", "/unknown"), rotates.get)
    assert warned.startswith("journal /hdd/journal is on a rotating disk")
    assert "journalSyncData=false" in warned


@pytest.mark.feature("F-TUN-09")
def test_the_kernel_is_asked_of_the_device_or_of_the_disk_that_it_is_a_part_of(tmp_path: Path) -> None:
    disk, devices = tmp_path / "sda", tmp_path / "block"
    (disk / "queue").mkdir(parents=True)
    (disk / "sda1").mkdir()
    devices.mkdir()
    for number, place in ((0, disk), (1, disk / "sda1")):
        (devices / f"8:{number}").symlink_to(place)
    for said, rotates in (("1\n", True), ("0\n", False)):
        (disk / "queue" / "rotational").write_text(said)
        assert [device_rotates(os.makedev(8, number), devices) for number in (0, 1, 2)] == [rotates, rotates, None]


@pytest.mark.feature("F-TUN-09")
@pytest.mark.parametrize(("sync", "warnings"), [(True, 1), (False, 0)])
def test_a_bookie_says_at_its_start_that_its_journal_should_not_rotate(
    sync: bool, warnings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "journal").mkdir()
    monkeypatch.setattr(machine, "device_rotates", lambda device: True)
    warn_of_disks(BookieSettings(journal_sync=sync), str(tmp_path))
    assert caplog.text.count("is on a rotating disk") == warnings
