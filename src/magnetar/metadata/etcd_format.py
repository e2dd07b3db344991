# SPDX-License-Identifier: Apache-2.0
"""Records as keys and values of etcd, and the JSON that etcd's gateway speaks. Written down in docs/formats/etcd.md.

A record is one key: the chroot and the path. etcd keeps no times, so a value begins with a version byte and the two
moments of the record. Numbers that make sequential names lie beside the tree.
Decides.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from magnetar.errors import DamagedRecord
from magnetar.metadata.paths import ROOT
from magnetar.metadata.store import Change, ChangeKind, Record

VERSION: Final = 1
# The character after '/': everything below a path lies between path + '/' and path + this.
AFTER_SLASH: Final = "0"
_ENVELOPE: Final = Struct(">Bqq")


class Held(NamedTuple):
    """A record as etcd has it. `changed` is the revision of its last write, `lease` 0 when it is persistent."""

    record: Record
    changed: int
    lease: int


class Keys:
    """Where records lie below one chroot (empty, or a path)."""

    __slots__ = ("_chroot",)

    def __init__(self, chroot: str) -> None:
        self._chroot = chroot

    def record(self, path: str) -> str:
        return encoded(self._chroot + path)

    def below(self, path: str) -> tuple[str, str]:
        """First and last key, the last not included, of everything below a path."""
        start = self._chroot + ("" if path == ROOT else path)
        return encoded(start + "/"), encoded(start + AFTER_SLASH)

    def after(self, path: str) -> str:
        """The first key that is not the record's or of one below it."""
        return encoded(self._chroot + path + AFTER_SLASH)

    def next(self, path: str) -> str:
        return encoded(self._chroot + path + "\0")

    def counter(self, parent: str) -> str:
        """The last number that was given to a sequential record below this parent."""
        return encoded(f"{self._chroot}#sequence{parent}")

    def path(self, key: str) -> str:
        return base64.b64decode(key).decode()[len(self._chroot) :]


def encoded(text: "str | bytes") -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def encode_value(value: bytes, created_ms: int, modified_ms: int) -> str:
    return encoded(_ENVELOPE.pack(VERSION, created_ms, modified_ms) + value)


def decode_held(found: Mapping[str, Any], where: str) -> Held:
    """DamagedRecord for what Magnetar did not write, or a newer one did."""
    data = base64.b64decode(found.get("value", ""))
    if len(data) < _ENVELOPE.size:
        raise DamagedRecord(f"The etcd key of {where} was not written by Magnetar: choose another chroot")
    version, created_ms, modified_ms = _ENVELOPE.unpack_from(data)
    if version != VERSION:
        raise DamagedRecord(
            f"The etcd key of {where} has format {version}, this version knows {VERSION}: "
            "it was written by a newer Magnetar, or by something else"
        )
    lease = int(found.get("lease", 0))
    number = int(found["version"]) - 1
    record = Record(data[_ENVELOPE.size :], number, lease != 0, created_ms, modified_ms)
    return Held(record, int(found["mod_revision"]), lease)


# --- requests -------------------------------------------------------------------------------------


def read(key: str) -> dict[str, Any]:
    return {"request_range": {"key": key}}


def write(key: str, value: str, *, lease: int = 0, keeps_lease: bool = False) -> dict[str, Any]:
    body: dict[str, Any] = {"key": key, "value": value}
    if keeps_lease:
        body["ignore_lease"] = True
    elif lease:
        body["lease"] = str(lease)
    return {"request_put": body}


def remove(key: str) -> dict[str, Any]:
    return {"request_delete_range": {"key": key}}


def is_unchanged(key: str, held: Held | None) -> dict[str, Any]:
    revision = held.changed if held is not None else 0
    return {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def takes_children(key: str) -> list[dict[str, Any]]:
    """The record is there and persistent."""
    return [
        {"key": key, "target": "VERSION", "result": "GREATER", "version": "0"},
        {"key": key, "target": "LEASE", "result": "EQUAL", "lease": "0"},
    ]


def is_empty(start: str, end: str) -> dict[str, Any]:
    return {"key": start, "range_end": end, "target": "VERSION", "result": "EQUAL", "version": "0"}


# --- answers --------------------------------------------------------------------------------------


def first_of(answer: Mapping[str, Any], number: int, where: str) -> Held | None:
    """The one record in the numbered answer of a transaction."""
    found = answer["responses"][number]["response_range"].get("kvs", ())
    return decode_held(found[0], where) if found else None


def revision_of(answer: Mapping[str, Any]) -> int:
    return int(answer["header"]["revision"])


def changes_of(event: Mapping[str, Any], keys: Keys) -> Iterator[Change]:
    """What one event of a watch says; nothing for the counters beside the tree."""
    found = event["kv"]
    path = keys.path(found["key"])
    if not path.startswith("/"):
        return
    parent = path[: path.rindex("/")] or ROOT
    if event.get("type") == "DELETE":
        yield Change(ChangeKind.DELETED, path)
        yield Change(ChangeKind.CHILDREN_CHANGED, parent)
    elif found["create_revision"] == found["mod_revision"]:
        yield Change(ChangeKind.CREATED, path)
        yield Change(ChangeKind.CHILDREN_CHANGED, parent)
    else:
        yield Change(ChangeKind.MODIFIED, path)


def error_text(body: bytes) -> str:
    try:
        said = json.loads(body)
        return str(said.get("message") or said.get("error") or said)[:300]
    except (ValueError, AttributeError, RecursionError):
        return body[:300].decode(errors="replace")
