# SPDX-License-Identifier: Apache-2.0
"""A medium on which a recorded run is played back up to any call, loses its power, and is laid out as files again.

Names and pages are those of the simulated disk: what no sync covered survives in any legal part, in any order, torn.
"""

from collections.abc import Collection, Iterable
from copy import deepcopy
from pathlib import Path
from random import Random

from magnetar.runtime.simulated_names import Directory, Names
from magnetar.runtime.simulated_pages import Pages
from tests.faults.recorded_calls import Kind, Recorded

# A change of names by its number, or a write by its file and its number there.
Operation = tuple[str, int]


class Medium:
    def __init__(self) -> None:
        self._names = Names()
        # Per running sync: how far it covers its file; None for a directory.
        self._syncing: dict[str, int | None] = {}
        self.said: list[bytes] = []

    def play(self, calls: Iterable[Recorded]) -> None:
        for call in calls:
            self._play(call)

    def lose_power(self, random: Random) -> None:
        self._names.lose_power(random)
        for _, pages in self._names.files():
            pages.lose_power(random)

    def lay_out(self, directory: Path) -> None:
        _lay_out(self._names.root, directory)

    @classmethod
    def holding(cls, directory: Path) -> "Medium":
        """What lies in a directory, durable."""
        medium = cls()
        medium._names.root = _taken(directory)
        return medium

    def copy(self) -> "Medium":
        return deepcopy(self)

    # --- few enough losses to try them all ------------------------------------------------------------------

    def unsynced_names(self) -> int:
        return len(self._names._pending)

    def unsynced_writes(self) -> int:
        """Of files whose every loss matters; nobody reads what a database notes for people."""
        return sum(len(pages._pending) for path, pages in self._names.files() if not _is_note(path))

    def keep_names(self, chosen: int) -> None:
        """Of the changes of names that no sync covered, those whose bits are set."""
        names = self._names
        names._pending = [change for number, change in enumerate(names._pending) if chosen >> number & 1]
        names.lose_power(_AllKept())

    def keep_writes(self, chosen: int) -> None:
        """Of the writes that no sync covered, those whose bits are set, each whole, and none of the notes."""
        number = 0
        for path, pages in self._names.files():
            kept = []
            if not _is_note(path):
                kept = [operation for each, operation in enumerate(pages._pending) if chosen >> (number + each) & 1]
                number += len(pages._pending)
            pages._pending = kept
            pages.sync(pages.mark())
            pages.visible = bytearray(pages.durable)

    # --- where there are too many for that --------------------------------------------------------------------

    def unsynced_operations(self) -> list[Operation]:
        writes = [
            (path, number)
            for path, pages in self._names.files()
            if not _is_note(path)
            for number in range(len(pages._pending))
        ]
        return [("", number) for number in range(len(self._names._pending))] + writes

    def leave_out(self, chosen: Collection[Operation]) -> None:
        """Of what no sync covered all is kept, but for these operations and the notes."""
        names = self._names
        names._pending = [change for number, change in enumerate(names._pending) if ("", number) not in chosen]
        # By the paths of before: a name that goes back takes its file's writes along.
        for path, pages in list(names.files()):
            kept = [] if _is_note(path) else [each for n, each in enumerate(pages._pending) if (path, n) not in chosen]
            pages._pending = kept
            pages.sync(pages.mark())
            pages.visible = bytearray(pages.durable)
        names.lose_power(_AllKept())

    def _play(self, call: Recorded) -> None:
        names, path = self._names, call.path
        match call.kind:
            case Kind.SAID:
                self.said.append(call.data)
            case Kind.CREATE:
                names.add(path, Pages())
            case Kind.MAKE_DIRECTORY:
                names.add(path, Directory())
            case Kind.RENAME:
                names.rename(path, call.other)
            case Kind.UNLINK:
                names.remove(path)
            case Kind.REMOVE_DIRECTORY:
                names.remove_tree(path)
            case Kind.SYNC_BEGINS:
                node = names.find(path)
                self._syncing[call.other] = node.mark() if isinstance(node, Pages) else None
            case Kind.SYNC_ENDS:
                self._synced(path, self._syncing.pop(call.other))
            case _:
                self._change(call)

    def _change(self, call: Recorded) -> None:
        pages = self._names.find(call.path)
        if not isinstance(pages, Pages):
            # Deleted while it was open.
            return
        if call.kind is Kind.WRITE:
            pages.write(call.offset, call.data)
        elif call.kind is Kind.WRITE_DURABLY:
            pages.write_through(call.offset, call.data)
        elif call.kind is Kind.RESIZE or call.offset > len(pages):
            pages.resize(call.offset)

    def _synced(self, path: str, mark: int | None) -> None:
        node = self._names.find(path)
        if isinstance(node, Pages) and mark is not None:
            node.sync(mark)
        elif isinstance(node, Directory):
            self._names.sync(path)


class _AllKept(Random):
    def random(self) -> float:
        return 0.0

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return (start if stop is None else stop) - 1


def _is_note(path: str) -> bool:
    return path.rpartition("/")[2] == "LOG"


def _taken(directory: Path) -> Directory:
    taken = Directory()
    for path in sorted(directory.iterdir()):
        taken.visible[path.name] = _taken(path) if path.is_dir() else Pages(path.read_bytes())
    taken.durable = dict(taken.visible)
    return taken


def _lay_out(directory: Directory, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name, node in directory.visible.items():
        if isinstance(node, Directory):
            _lay_out(node, target / name)
        else:
            (target / name).write_bytes(node.visible)
