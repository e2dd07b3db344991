# SPDX-License-Identifier: Apache-2.0
"""Offsets as Spark's checkpoint keeps them and as people read and edit them.

Per topic partition: `{"index": 1234, "after": "7:12"}`. `index` is the number of the next message to read, `after` the
message that was read last: `ledger:entry`, or `ledger:entry:n` for the first n messages of a batch. Either may be
missing: an index alone is looked up, an id alone (brokers that do not number messages) is enough. The end of a query's
first batch also says where that one began, as `from`: Spark keeps the ends alone. Never asks a broker.
Decides.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from magnetar.errors import BadMessageId, BadSetting
from magnetar.ids import EARLIEST, MessageId, Position

Json: TypeAlias = dict[str, Any]


class Place(NamedTuple):
    """Between two messages: behind all messages of entries before `entry`, and the first `messages` of that one.

    `messages` None means the whole entry.
    """

    ledger_id: int
    entry_id: int
    messages: int | None = None

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    def covers(self, position: Position, batch_index: int) -> bool:
        """Whether the message (batch index -1: not in a batch) lies before this place."""
        if position != self.position:
            return position < self.position
        return self.messages is None or max(0, batch_index) < self.messages

    @property
    def order(self) -> tuple[int, int, int]:
        return (self.ledger_id, self.entry_id, 2**31 if self.messages is None else self.messages)

    def __str__(self) -> str:
        whole = f"{self.ledger_id}:{self.entry_id}"
        return whole if self.messages is None else f"{whole}:{self.messages}"

    @staticmethod
    def parse(text: str) -> "Place":
        """Raises BadSetting."""
        try:
            numbers = [int(part) for part in text.split(":")]
            if not 2 <= len(numbers) <= 3 or min(numbers) < -1 or max(numbers) >= 2**63:
                raise ValueError
        except ValueError:
            raise BadSetting(
                f"offset {text[:100]!r} should be ledger:entry, or ledger:entry:n for n messages of a batch"
            ) from None
        return Place(*numbers)

    @staticmethod
    def behind(message_id: MessageId) -> "Place":
        """Behind a message; a batch's last message is the end of its entry where the size is known."""
        if message_id.batch_index < 0 or message_id.batch_index + 1 == message_id.batch_size:
            return Place(*message_id.position)
        return Place(*message_id.position, message_id.batch_index + 1)


BEFORE_ALL: Final = Place(*EARLIEST)


@dataclass(frozen=True, slots=True)
class Offset:
    """How far one topic partition is read. `index` and `after` are None where they are not known."""

    index: int | None
    after: Place | None
    # Of the end of a query's first batch: where it began. Says nothing about the place itself.
    begun: "Offset | None" = field(default=None, compare=False)

    def to_json(self) -> Json:
        written: Json = {}
        if self.index is not None:
            written["index"] = self.index
        if self.after is not None:
            written["after"] = str(self.after)
        if self.begun is not None:
            written["from"] = self.begun.to_json()
        return written

    @staticmethod
    def from_json(value: object) -> "Offset":
        """Takes what `to_json` writes, a bare index, a bare place, or a serialised message id in hexadecimal."""
        if isinstance(value, bool):
            raise BadSetting(f"{value!r} is no offset")
        if isinstance(value, int):
            return Offset(_number(value), None)
        if isinstance(value, str):
            return Offset(None, _place_of_text(value))
        if isinstance(value, Mapping) and value and set(value) <= {"index", "after", "from"}:
            index, after = value.get("index"), value.get("after")
            begun = Offset.from_json(value["from"]) if "from" in value else None
            if (index is None or isinstance(index, int)) and (after is None or isinstance(after, str)):
                return Offset(_number(index), None if after is None else Place.parse(after), begun)
        raise BadSetting(f'{json.dumps(value)[:200]} is no offset: it should be like {{"index": 12, "after": "7:11"}}')


def _number(index: int | None) -> int | None:
    if index is not None and index < 0:
        raise BadSetting(f"{index} is no number of a message; the first one is 0")
    return index


def _place_of_text(text: str) -> Place:
    if ":" in text:
        return Place.parse(text)
    try:
        return Place.behind(MessageId.decode(bytes.fromhex(text)))
    except (ValueError, BadMessageId):
        raise BadSetting(f"{text[:100]!r} is neither ledger:entry nor a message id in hexadecimal") from None


START: Final = Offset(0, BEFORE_ALL)


def offsets_to_json(offsets: Mapping[str, Offset]) -> Json:
    return {topic: offsets[topic].to_json() for topic in sorted(offsets)}


def offsets_from_json(written: Mapping[str, Any]) -> dict[str, Offset]:
    """Raises BadSetting, naming the topic."""
    found = {}
    for topic in sorted(written):
        try:
            found[topic] = Offset.from_json(written[topic])
        except BadSetting as error:
            raise BadSetting(f"offset of {topic}: {error}") from None
        except RecursionError:
            raise BadSetting(f"offset of {topic}: it nests too deeply") from None
    return found
