# SPDX-License-Identifier: Apache-2.0
"""The names of a simulated disk: directories and files as the running system sees them, and as they are on the medium.

A change of names is visible at once and durable after a sync of its directory. A power loss keeps a beginning, or any
part, of the changes that no sync has covered. Decides.
"""

import errno
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from magnetar.runtime.simulated_pages import Pages


class Directory:
    __slots__ = ("durable", "visible")

    def __init__(self) -> None:
        self.visible: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = Directory | Pages


class Entry(NamedTuple):
    """A name in a directory, and what it stands for; None when the name goes."""

    directory: Directory
    name: str
    node: Node | None


# What becomes durable together: one entry, or the two of a rename.
Change = tuple[Entry, ...]


def split_path(path: str) -> list[str]:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


class Names:
    def __init__(self) -> None:
        self.root = Directory()
        self._pending: list[Change] = []

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for part in split_path(path):
            if not isinstance(node, Directory):
                return None
            node = node.visible.get(part)
        return node

    def file(self, path: str) -> Pages:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def directory(self, path: str) -> Directory:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def place(self, path: str) -> tuple[Directory, str]:
        """The directory in which the last name of a path stands or would stand, and that name."""
        parts = split_path(path)
        if not parts:
            raise IsADirectoryError(errno.EISDIR, "is the root", path)
        return self.directory("/".join(parts[:-1])), parts[-1]

    def add(self, path: str, node: Node) -> None:
        directory, name = self.place(path)
        self._change((Entry(directory, name, node),))

    def remove(self, path: str) -> Pages:
        pages = self.file(path)
        directory, name = self.place(path)
        self._change((Entry(directory, name, None),))
        return pages

    def rename(self, source: str, target: str) -> None:
        node = self.find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        old_directory, old_name = self.place(source)
        directory, name = self.place(target)
        if isinstance(directory.visible.get(name), Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", target)
        if (old_directory, old_name) != (directory, name):
            self._change((Entry(directory, name, node), Entry(old_directory, old_name, None)))

    def remove_tree(self, path: str) -> None:
        directory = self.directory(path)
        for name in sorted(directory.visible):
            if isinstance(directory.visible[name], Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self._change((Entry(directory, name, None),))
        if split_path(path):
            parent, name = self.place(path)
            self._change((Entry(parent, name, None),))

    def sync(self, path: str) -> None:
        """Make the changes in a directory durable, with the other halves of its renames and all that came before."""
        directories = [self.directory(path)]
        covered: list[Change] = []
        rest: list[Change] = []
        for change in reversed(self._pending):
            if any(entry.directory is directory for entry in change for directory in directories):
                covered.append(change)
                directories += [entry.directory for entry in change]
            else:
                rest.append(change)
        self._pending = rest[::-1]
        for change in reversed(covered):
            _apply(change)

    def is_durable(self, path: str) -> bool:
        """Would this path lead to the same file after a power loss?"""
        node: Node = self.root
        for part in split_path(path):
            if not isinstance(node, Directory) or node.durable.get(part) is not node.visible.get(part):
                return False
            following = node.durable.get(part)
            if following is None:
                return False
            node = following
        return True

    def lose_power(self, random: Random) -> int:
        """Keep a legal part of the changes that no sync covered; returns how many were lost."""
        pending, self._pending = self._pending, []
        if random.random() < 0.5:
            kept = pending[: random.randrange(len(pending) + 1)]
        else:
            kept = [change for change in pending if random.random() < 0.5]
        for change in kept:
            _apply(change)
        self._show_durable(self.root)
        return len(pending) - len(kept)

    def files(self) -> Iterator[tuple[str, Pages]]:
        """Every visible file with its path, in order of names."""
        yield from _files(self.root, "")

    def _change(self, change: Change) -> None:
        self._pending.append(change)
        for directory, name, node in change:
            if node is None:
                directory.visible.pop(name, None)
            else:
                directory.visible[name] = node

    def _show_durable(self, directory: Directory) -> None:
        directory.visible = dict(directory.durable)
        for node in directory.visible.values():
            if isinstance(node, Directory):
                self._show_durable(node)


def _apply(change: Change) -> None:
    for directory, name, node in change:
        if node is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = node


def _files(directory: Directory, prefix: str) -> Iterator[tuple[str, Pages]]:
    for name in sorted(directory.visible):
        node = directory.visible[name]
        if isinstance(node, Directory):
            yield from _files(node, f"{prefix}{name}/")
        else:
            yield prefix + name, node
