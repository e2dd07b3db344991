# SPDX-License-Identifier: Apache-2.0
"""Whether the kernel has a part of a file in memory, asked without reading it.

A read that must not wait still has the kernel order what it lacks from the disk: allocating pages and handing a request
to the device takes most of a millisecond of whoever asked. Linux 6.5 and newer say how much they have. Carries.
"""

import ctypes
import mmap
import sys
from typing import Final

# The same on every architecture.
_CACHESTAT: Final = 451
_PAGE_BYTES: Final = mmap.PAGESIZE


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Found(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("present", "dirty", "written", "evicted", "recently_evicted"))


# With the interpreter's lock: it takes a microsecond, and whoever gave the lock away would wait for it.
_syscall = ctypes.PyDLL(None).syscall if sys.platform.startswith("linux") else None


class KernelMemory:
    """For one file, asked by one thread. Where there is no answer all may be there: the read itself finds out."""

    __slots__ = ("_ask", "_found", "_range")

    def __init__(self) -> None:
        self._ask = _syscall
        self._range = _Range()
        self._found = _Found()

    def may_have(self, fd: int, offset: int, length: int) -> bool:
        """False when a page of it is missing for sure."""
        if self._ask is None or length <= 0:
            return True
        self._range.offset, self._range.length = offset, length
        if self._ask(_CACHESTAT, fd, ctypes.byref(self._range), ctypes.byref(self._found), 0):
            # Older, or not allowed to say.
            self._ask = None
            return True
        pages = (offset + length - 1) // _PAGE_BYTES - offset // _PAGE_BYTES + 1
        return bool(self._found.present >= pages)
