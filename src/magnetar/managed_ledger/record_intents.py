# SPDX-License-Identifier: Apache-2.0
"""What Pulsar's records of logs and cursors cannot say, kept in properties that users neither see nor set.

`magnetar.reserved` is the ledger that is being made, `magnetar.deleting` are ledgers that nothing names any more and
that must still be deleted, `magnetar.deleted` is set when the whole log or cursor is going away. What a log's owner
wants to know when the entries that told it are gone is `magnetar.kept.NAME`.
Decides.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from magnetar.errors import BadName

_OWN_PREFIX: Final = "magnetar."
_DELETING: Final = "magnetar.deleting"
_DELETED: Final = "magnetar.deleted"
_RESERVED: Final = "magnetar.reserved"
_KEPT_PREFIX: Final = "magnetar.kept."
_DIGITS_MAX: Final = 19


class Intents(NamedTuple):
    """A reserved ledger exists or not, and nothing in it counts."""

    deleting: list[int]
    is_deleted: bool
    reserved: int | None


def refuse_own(properties: Iterable[str]) -> None:
    """BadName for a property that a user may not set."""
    for name in properties:
        if name.startswith(_OWN_PREFIX):
            raise BadName(
                f"The property {name!r} cannot be set: names that begin with {_OWN_PREFIX!r} are Magnetar's own"
            )


def split_properties(stored: Mapping[str, str]) -> tuple[dict[str, str], Intents]:
    """The users' properties of a record, and its intents."""
    users = {key: value for key, value in stored.items() if not key.startswith(_OWN_PREFIX)}
    reserved = next(iter(_ids_of(stored.get(_RESERVED, ""))), None)
    return users, Intents(_ids_of(stored.get(_DELETING, "")), stored.get(_DELETED) == "true", reserved)


def kept_of(stored: Mapping[str, str]) -> dict[str, str]:
    """What a log's owner keeps beside its entries, by name."""
    return {key.removeprefix(_KEPT_PREFIX): value for key, value in stored.items() if key.startswith(_KEPT_PREFIX)}


def joined_properties(
    users: Mapping[str, str], intents: Intents, kept: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """What is stored, by name: the reverse of `split_properties` and `kept_of`."""
    pairs = dict(users)
    pairs.update((f"{_KEPT_PREFIX}{name}", value) for name, value in (kept or {}).items())
    if intents.deleting:
        pairs[_DELETING] = ",".join(map(str, intents.deleting))
    if intents.is_deleted:
        pairs[_DELETED] = "true"
    if intents.reserved is not None:
        pairs[_RESERVED] = str(intents.reserved)
    return sorted(pairs.items())


def _ids_of(text: str) -> list[int]:
    """Ledger ids written as `3,5,6`."""
    return [int(part) for part in text.split(",") if part.isdecimal() and len(part) <= _DIGITS_MAX]
