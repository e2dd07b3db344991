# SPDX-License-Identifier: Apache-2.0
"""How many disks, and what a machine is told at the start."""

import pytest

from magnetar.cli.sizing import DiskKind, Load, size
from magnetar.errors import BadSetting
from magnetar.runtime.machine_advice import memory_sentences, shared_disks, split_memory

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
