# SPDX-License-Identifier: Apache-2.0
"""MESSAGE commands in a row: of one consumer and one ledger they differ in the entry id alone, so only that is read.

A row is made from a command that was parsed; what does not fit it is parsed again, and begins the next row. Tests hold
the answer equal to the generated code's.
Decides.
"""

from typing import Final

from magnetar.errors import BadCommand
from magnetar.wire.varint import decode

_NUMBER_BYTES_MAX: Final = 4


class MessageRow:
    """`entry_id` is the fast question; the rest is what all commands of the row have in common."""

    __slots__ = ("_front", "_front_bytes", "_size", "_tail", "_tail_at", "consumer_id", "epoch", "ledger_id")

    def __init__(
        self, front: bytes, number_bytes: int, tail: bytes, consumer_id: int, ledger_id: int, epoch: int = -1
    ) -> None:
        self._front = front
        self._front_bytes = len(front)
        self._tail = tail
        self._tail_at = len(front) + number_bytes
        self._size = self._tail_at + len(tail)
        self.consumer_id = consumer_id
        self.ledger_id = ledger_id
        # The consumer's epoch that they were sent in; -1 if they do not say.
        self.epoch = epoch

    def entry_id(self, command: bytes) -> int:
        """The entry id, or -1 if the command is not of this row."""
        at = self._front_bytes
        if len(command) != self._size or command[:at] != self._front or command[self._tail_at :] != self._tail:
            return -1
        number = shift = 0
        more = 128
        for byte in command[at : self._tail_at]:
            # All bytes but the last say that there is more; else another field begins where the row's number goes on.
            if more < 128:
                return -1
            number |= (byte & 127) << shift
            shift += 7
            more = byte
        return number if more < 128 and encoded_bytes(number) * 7 == shift else -1

    @staticmethod
    def of(command: bytes) -> "MessageRow":
        """The row that this command begins; one that nothing fits if it says more than most do."""
        try:
            if command[:3] != b"\x08\x09\x4a":
                return NO_ROW
            size, place = decode(command, 3)
            end = place + size
            if command[place] != 0x08 or end != len(command):
                return NO_ROW
            consumer_id, place = decode(command, place + 1)
            if command[place] != 0x12:
                return NO_ROW
            size, place = decode(command, place + 1)
            id_end = place + size
            if command[place] != 0x08:
                return NO_ROW
            ledger_id, place = decode(command, place + 1)
            if command[place] != 0x10 or ledger_id >= 2**63:
                return NO_ROW
            _, after = decode(command, place + 1)
            number_bytes = after - place - 1
            last, epoch = after, -1
            if last < id_end and command[last] == 0x18:
                _, last = decode(command, last + 1)
            if last != id_end:
                return NO_ROW
            if last < end and command[last] == 0x28:
                epoch, last = decode(command, last + 1)
            # Nothing else is said: no redelivery count, no part of a batch.
            if last != end or number_bytes > _NUMBER_BYTES_MAX:
                return NO_ROW
        except (BadCommand, IndexError):
            return NO_ROW
        return MessageRow(command[: place + 1], number_bytes, command[after:], consumer_id, ledger_id, epoch)


def encoded_bytes(number: int) -> int:
    """How many bytes a number takes when it is written as short as can be."""
    return 1 if number < 0x80 else 2 if number < 0x4000 else 3 if number < 0x20_0000 else 4


NO_ROW: Final = MessageRow(b"", 0, b"no command ends with this and is as long", -1, -1)
