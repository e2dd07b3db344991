# SPDX-License-Identifier: Apache-2.0
"""The cluster's format level: what each level allows members to write, its record, and when it may rise.

A level stands for everything that may be written; who can read level n can read all below it. The level only rises, and
only to what every member has announced. Members that say nothing are of the first release. The record is described in
docs/formats/format_level.md.
Decides.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from magnetar.config.metadata import FORMAT_LEVEL_FIRST, FORMAT_LEVEL_NEWEST
from magnetar.errors import CannotStart, NewerFormat

PATH: Final = "/magnetar/format-level"
VERSION: Final = 1

COMPRESSED_RECORDS: Final = 2
# What a level adds to the one before it.
LEVELS: Final[dict[int, str]] = {
    FORMAT_LEVEL_FIRST: "everything of the first release",
    COMPRESSED_RECORDS: "records of topics and subscriptions may be compressed",
}
assert max(LEVELS) == FORMAT_LEVEL_NEWEST


class LevelRecord(NamedTuple):
    """What may be written, and to what that is about to rise (0: to nothing)."""

    level: int = FORMAT_LEVEL_FIRST
    proposed: int = 0

    def refuse_unless_readable(self, highest: int, *, joins: bool) -> None:
        """NewerFormat for who reads up to `highest` only. Who joins must be able to follow a rise that has begun."""
        needed = max(self.level, self.proposed) if joins else self.level
        if needed > highest:
            raise NewerFormat(
                f"The cluster writes formats of level {needed} ({PATH}), and this Magnetar reads up to {highest}: "
                "start the newer version, or raise metadata.format_level_max where it was set; nothing was changed"
            )


def encode(record: LevelRecord) -> bytes:
    return json.dumps({"version": VERSION, "level": record.level, "proposed": record.proposed}).encode()


def decode(value: bytes | None) -> LevelRecord:
    """CannotStart when it cannot be read: who does not know the level must write nothing."""
    if value is None:
        return LevelRecord()
    try:
        found = json.loads(value)
        version, level, proposed = (int(found[name]) for name in ("version", "level", "proposed"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CannotStart(
            f"The record {PATH} of the metadata store cannot be read ({error!r}): is it the right store? "
            "Nothing was changed"
        ) from error
    if version > VERSION:
        raise NewerFormat.of(PATH, version, VERSION)
    return LevelRecord(level, proposed)


def announced_level(text: object) -> int:
    """What a member says that it can read; the first level when it says nothing that can be understood."""
    try:
        return max(FORMAT_LEVEL_FIRST, int(str(text)))
    except ValueError:
        return FORMAT_LEVEL_FIRST


def common_level(announced: Mapping[str, int]) -> int:
    """The highest level that every member can read."""
    return min(announced.values(), default=FORMAT_LEVEL_FIRST)


def held_back_by(announced: Mapping[str, int], level: int) -> list[str]:
    """The members that cannot read this level, sorted."""
    return sorted(member for member, highest in announced.items() if highest < level)
