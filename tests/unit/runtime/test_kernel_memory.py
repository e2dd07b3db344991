# SPDX-License-Identifier: Apache-2.0
"""What the kernel has of a file, asked without reading it."""

import os
import sys
import time
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


@pytest.fixture
def memory(written: int) -> KernelMemory:
    """One that is answered: where CI runs, and on every Linux since 6.5 that does not forbid the question."""
    memory = KernelMemory()
    if memory.may_have(written, PAGE * PAGES, PAGE):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("the kernel does not say what it has: older than 6.5?")
    return memory


def forgets(fd: int, memory: KernelMemory) -> bool:
    """Have the kernel drop the file; False on a file system that is memory and nothing else.

    It is advice: of pages that are in somebody's hands just then the kernel keeps some, so it is given again.
    """
    until_s = time.monotonic() + 2
    while not _is_forgotten(fd, memory):
        if time.monotonic() > until_s:
            return False
        time.sleep(0.01)
    return True


def _is_forgotten(fd: int, memory: KernelMemory) -> bool:
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return not any(memory.may_have(fd, page * PAGE, PAGE) for page in range(PAGES))


def test_what_was_just_written_is_there_and_beyond_the_end_is_nothing(written: int, memory: KernelMemory) -> None:
    assert memory.may_have(written, 0, PAGE * PAGES)
    assert memory.may_have(written, 100, 1)
    assert memory.may_have(written, 0, 0)
    assert not memory.may_have(written, PAGE * PAGES, PAGE)


def test_what_was_dropped_is_not_and_a_part_is_not_the_whole(written: int, memory: KernelMemory) -> None:
    if not forgets(written, memory):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("temporary files are on a file system that is memory")
    os.pread(written, PAGE, 10 * PAGE)
    assert memory.may_have(written, 10 * PAGE, PAGE)
    assert memory.may_have(written, 10 * PAGE + 5, PAGE - 5)
    assert not memory.may_have(written, 10 * PAGE, 2 * PAGE)
    assert not memory.may_have(written, 10 * PAGE - 1, 2)


def test_a_kernel_that_does_not_answer_may_have_everything(written: int) -> None:
    memory = KernelMemory()
    assert memory.may_have(-1, 0, PAGE)
    assert memory.may_have(written, PAGE * PAGES, PAGE)
