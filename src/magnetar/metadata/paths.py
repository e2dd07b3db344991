# SPDX-License-Identifier: Apache-2.0
"""Paths of records: what is allowed, what lies above and below.

Absolute, '/'-separated, no trailing slash, no empty part, no '.' or '..': what ZooKeeper takes, so that every store
does.
Decides.
"""

from magnetar.errors import BadPath

ROOT = "/"


def check_path(path: str, bytes_max: int) -> None:
    """Raise BadPath unless every store can hold a record at this path."""
    if path == ROOT:
        return
    if not path.startswith("/"):
        raise BadPath(f"{path!r} is not a metadata path: it must start with '/'")
    if path.endswith("/") or "//" in path:
        raise BadPath(f"{path!r} is not a metadata path: it has an empty part")
    if "/." in path and any(part in (".", "..") for part in path.split("/")):
        raise BadPath(f"{path!r} is not a metadata path: '.' and '..' are not names")
    if not path.isprintable():
        raise BadPath(f"{path!r} is not a metadata path: it has a control character")
    if len(path) > bytes_max or (not path.isascii() and len(path.encode()) > bytes_max):
        raise BadPath(f"metadata path of {len(path.encode())} bytes is longer than {bytes_max}: {path[:80]!r}…")


def parent_of(path: str) -> str:
    """The path above; the root is its own parent."""
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]


def child_of(path: str, name: str) -> str:
    return f"/{name}" if path == ROOT else f"{path}/{name}"


def lineage(path: str) -> list[str]:
    """The path and everything above it, nearest first, the root last."""
    line = [path]
    while path != ROOT:
        path = parent_of(path)
        line.append(path)
    return line


def is_within(path: str, prefix: str) -> bool:
    """Whether path is prefix or lies below it."""
    return path == prefix or prefix == ROOT or path.startswith(f"{prefix}/")
