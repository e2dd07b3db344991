# SPDX-License-Identifier: Apache-2.0
"""What the kernel has of a file, asked without reading it."""

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.runtime.kernel_memory import KernelMemory

PAGE = 4096
PAGES = 64

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel of Linux is asked")


@pytest.fixture
def written(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(fd, os.urandom(PAGE * PAGES), 0)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        yield fd
    finally:
        os.close(fd)


def forgets(fd: int) -> bool:
    """Have the kernel drop the file; False on a file system that has nothing else, or an older kernel."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        os.preadv(fd, [bytearray(PAGE)], 0, os.RWF_NOWAIT)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def test_what_was_just_written_is_there(written: int) -> None:
    memory = KernelMemory()
    assert memory.may_have(written, 0, PAGE * PAGES)
    assert memory.may_have(written, 100, 1)
    assert memory.may_have(written, 0, 0)


def test_what_was_dropped_is_not_and_a_part_is_not_the_whole(written: int) -> None:
    memory = KernelMemory()
    if not forgets(written):
        pytest.skip("this file system keeps everything in memory")
    os.posix_fadvise(written, 0, 0, os.POSIX_FADV_DONTNEED)
    assert not memory.may_have(written, 10 * PAGE, PAGE)
    os.pread(written, PAGE, 10 * PAGE)
    assert memory.may_have(written, 10 * PAGE, PAGE)
    assert memory.may_have(written, 10 * PAGE + 5, PAGE - 5)
    assert not memory.may_have(written, 10 * PAGE, 2 * PAGE)
    assert not memory.may_have(written, 10 * PAGE - 1, 2)


def test_beyond_the_end_of_a_file_there_is_nothing(written: int) -> None:
    assert not KernelMemory().may_have(written, PAGE * PAGES, PAGE)


def test_a_kernel_that_does_not_answer_may_have_everything(written: int) -> None:
    memory = KernelMemory()
    assert memory.may_have(-1, 0, PAGE)
    assert memory.may_have(written, PAGE * PAGES, PAGE)
