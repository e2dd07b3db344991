# SPDX-License-Identifier: Apache-2.0
"""What a process asked of the kernel, in order: its writes, syncs and names under one directory, recorded by strace.

A sync has a beginning and an end, because what is written between the two is not covered by it. Lines that the process
printed are part of the record: they say what it had promised by then.
"""

import re
import subprocess
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple


class Kind(Enum):
    CREATE = "create"
    WRITE = "write"
    # Written and durable at once, for this write alone.
    WRITE_DURABLY = "write-durably"
    RESIZE = "resize"
    GROW = "grow"
    RENAME = "rename"
    UNLINK = "unlink"
    MAKE_DIRECTORY = "make-directory"
    REMOVE_DIRECTORY = "remove-directory"
    SYNC_BEGINS = "sync-begins"
    SYNC_ENDS = "sync-ends"
    SAID = "said"


class Recorded(NamedTuple):
    kind: Kind
    # Under the recorded directory; of a line that was printed: empty.
    path: str
    offset: int = 0
    data: bytes = b""
    # Where a rename leads, or which of the running syncs this one is.
    other: str = ""


_CALLS = (
    "openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync_file_range,rename,renameat,renameat2,"
    "unlink,unlinkat,ftruncate,truncate,fallocate,mkdir,mkdirat,rmdir,lseek,link,linkat"
)
_LINE = re.compile(r"^(\d+) +(.*)$")
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)\) += (-?\d+)(?:<(.*)>)?")
_FD = re.compile(r"^(-?\d+|AT_FDCWD)<([^>]*)>")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_UNFINISHED = " <unfinished ...>"
_SYNCS = ("fsync", "fdatasync")


def record(command: list[str], directory: Path, strace: str) -> list[Recorded]:
    """Run a command to its end under strace; everything it did below the directory."""
    lengths = {str(path.relative_to(directory)): path.stat().st_size for path in directory.rglob("*") if path.is_file()}
    output = directory.parent / f"{directory.name}.strace"
    # Bytes are never cut, strings are always hexadecimal, descriptors come with their paths.
    traced = [strace, "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={_CALLS}", "-o", str(output), *command]
    subprocess.run(traced, check=True, stdout=subprocess.DEVNULL)
    with output.open() as lines:
        return list(_Parser(str(directory), lengths).parsed(lines))


class _Parser:
    def __init__(self, root: str, lengths: dict[str, int]) -> None:
        """`lengths`: of the files that are there before it begins."""
        self._root = root.rstrip("/")
        self._unfinished: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        self._appending: set[str] = set()
        self._lengths = lengths

    def parsed(self, lines: Iterator[str]) -> Iterator[Recorded]:
        for raw in lines:
            found = _LINE.match(raw.rstrip("\n"))
            if found is None:
                continue
            pid, text = found.groups()
            if text.endswith(_UNFINISHED):
                self._unfinished[pid] = text[: -len(_UNFINISHED)]
                yield from self._begun(pid, self._unfinished[pid])
                continue
            resumed = _RESUMED.match(text)
            if resumed is not None:
                text = self._unfinished.pop(pid) + resumed.group(2)
            else:
                yield from self._begun(pid, text)
            call = _CALL.match(text)
            if call is not None and int(call.group(3)) >= 0:
                yield from self._done(pid, *call.groups())

    def _begun(self, pid: str, text: str) -> Iterator[Recorded]:
        name, _, rest = text.partition("(")
        if name in _SYNCS:
            path = self._path_of(rest)
            if path is not None:
                yield Recorded(Kind.SYNC_BEGINS, path, other=pid)

    def _done(self, pid: str, name: str, given: str, result: str, opened: str | None) -> Iterator[Recorded]:
        if name in _SYNCS:
            path = self._path_of(given)
            if path is not None:
                yield Recorded(Kind.SYNC_ENDS, path, other=pid)
        elif name in ("openat", "open", "creat"):
            yield from self._opened(given, result, opened)
        elif name in ("write", "pwrite64", "writev", "pwritev", "pwritev2"):
            yield from self._written(name, given, int(result))
        elif name == "lseek":
            self._positions[given.partition("<")[0]] = int(result)
        elif name in ("ftruncate", "fallocate"):
            yield from self._resized(name, given)
        else:
            yield from self._renamed(name, given)

    def _opened(self, given: str, result: str, opened: str | None) -> Iterator[Recorded]:
        self._positions[result] = 0
        self._appending.discard(result)
        if "O_APPEND" in given:
            self._appending.add(result)
        path = self._below(_text(opened or ""))
        if path is None:
            return
        if "O_CREAT" in given and path not in self._lengths:
            self._lengths[path] = 0
            yield Recorded(Kind.CREATE, path)
        if "O_TRUNC" in given and self._lengths.get(path):
            self._lengths[path] = 0
            yield Recorded(Kind.RESIZE, path)

    def _written(self, name: str, given: str, length: int) -> Iterator[Recorded]:
        data = b"".join(_bytes(piece) for piece in _STRING.findall(given))[:length]
        fd = given.partition("<")[0]
        path = self._path_of(given)
        if path is None:
            if fd == "1":
                for line in data.splitlines():
                    yield Recorded(Kind.SAID, "", data=line)
            return
        if name in ("write", "writev"):
            offset = self._lengths.get(path, 0) if fd in self._appending else self._positions.get(fd, 0)
            self._positions[fd] = offset + length
        else:
            arguments = given.rsplit(", ", 2)
            offset = int(arguments[1] if name == "pwritev2" else arguments[2])
        self._lengths[path] = max(self._lengths.get(path, 0), offset + length)
        is_durable = "RWF_DSYNC" in given or "RWF_SYNC" in given
        yield Recorded(Kind.WRITE_DURABLY if is_durable else Kind.WRITE, path, offset, data)

    def _resized(self, name: str, given: str) -> Iterator[Recorded]:
        path = self._path_of(given)
        if path is None:
            return
        numbers = given.split(", ")
        if name == "ftruncate":
            self._lengths[path] = int(numbers[-1])
            yield Recorded(Kind.RESIZE, path, int(numbers[-1]))
        elif numbers[1] == "0":
            end = int(numbers[2]) + int(numbers[3])
            if end > self._lengths.get(path, 0):
                self._lengths[path] = end
                yield Recorded(Kind.GROW, path, end)

    def _renamed(self, name: str, given: str) -> Iterator[Recorded]:
        paths = [self._below(_text(piece)) for piece in _STRING.findall(given)]
        if not paths or paths[0] is None:
            return
        if name.startswith("rename"):
            assert paths[1] is not None, given
            self._lengths[paths[1]] = self._lengths.pop(paths[0], 0)
            yield Recorded(Kind.RENAME, paths[0], other=paths[1])
        elif name == "rmdir" or "AT_REMOVEDIR" in given:
            yield Recorded(Kind.REMOVE_DIRECTORY, paths[0])
        elif name.startswith("unlink"):
            self._lengths.pop(paths[0], None)
            yield Recorded(Kind.UNLINK, paths[0])
        elif name.startswith("mkdir"):
            yield Recorded(Kind.MAKE_DIRECTORY, paths[0])
        else:
            raise AssertionError(f"not replayed: {name}({given[:200]})")

    def _path_of(self, given: str) -> str | None:
        found = _FD.match(given)
        return self._below(_text(found.group(2))) if found is not None else None

    def _below(self, path: str) -> str | None:
        if path == self._root:
            return ""
        return path[len(self._root) + 1 :] if path.startswith(f"{self._root}/") else None


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def _text(shown: str) -> str:
    """A path, which strace shows as it is or in hexadecimal."""
    return _bytes(shown).decode() if shown.startswith("\\x") else shown
