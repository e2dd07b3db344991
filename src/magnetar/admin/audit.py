# SPDX-License-Identifier: Apache-2.0
"""The audit log: one line for every request that changes something or is refused for who sent it.

A line says who, from where, what, with which result, and for every record that was changed its members before and
after. Whatever changes a record notes it here; the request's bounds write the line. Secrets are left out by the names
of their members. Lines go to the logger `magnetar.audit` and are never held back as repeats.
Decides.
"""

import json
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

from magnetar.runtime.log import AUDIT_LOGGER, REDACTED, is_credential, redact

AUDIT: Final = logging.getLogger(AUDIT_LOGGER)
# What one line tells of changes.
CHANGES_MAX: Final = 20
VALUE_CHARACTERS_MAX: Final = 2_000
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSALS: Final = frozenset({401, 403})


class Trail:
    """What one request did."""

    __slots__ = ("changes", "role")

    def __init__(self) -> None:
        self.role = ""
        self.changes: list[str] = []

    def note(self, path: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        if len(self.changes) < CHANGES_MAX:
            self.changes.append(f"{path}: {difference(before, after)}")


_TRAIL: Final[ContextVar[Trail | None]] = ContextVar("audit", default=None)


def start_trail() -> Trail:
    trail = Trail()
    _TRAIL.set(trail)
    return trail


def note_change(path: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
    """A record was changed by the request that runs now; outside of requests nothing is noted."""
    trail = _TRAIL.get()
    if trail is not None:
        trail.note(path, before, after)


def note_role(role: str) -> None:
    trail = _TRAIL.get()
    if trail is not None:
        trail.role = role


def write_line(trail: Trail, method: str, path: str, peer: str, status: int) -> None:
    """Reading leaves no line, unless it was refused for who asked."""
    if method in _READING and status not in _REFUSALS:
        return
    fields = {"role": trail.role or "nobody", "peer": peer, "status": status}
    if trail.changes:
        fields["changes"] = "; ".join(trail.changes)
    AUDIT.info("%s %s", method, path[:VALUE_CHARACTERS_MAX], extra=fields)


def difference(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """The members that differ, each as it was and as it is; `nothing` where there was no record."""
    old, new = before or {}, after or {}
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    told = [f"{name} {_shown(name, old.get(name))} -> {_shown(name, new.get(name))}" for name in names]
    if before is None:
        told.insert(0, "made")
    if after is None:
        told.insert(0, "deleted")
    return ", ".join(told) or "unchanged"


def _shown(name: str, value: Any) -> str:
    text = json.dumps(without_secrets(name, value), separators=(",", ":"), default=str)
    return redact(text)[:VALUE_CHARACTERS_MAX]


def without_secrets(name: str, value: Any) -> Any:
    """The value without what the names of members say is secret."""
    if value is not None and is_credential(name):
        return REDACTED
    if isinstance(value, dict):
        return {key: without_secrets(str(key), each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_secrets("", each) for each in value]
    return value
