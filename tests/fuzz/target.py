# SPDX-License-Identifier: Apache-2.0
"""What a target of the fuzz is: a decoder, and good inputs for it.

A target gives a value or raises a MagnetarError, whatever the bytes; anything else is a bug.
Decides.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from magnetar.errors import MagnetarError

PIECE_BYTES_MAX: Final = 1 << 20


class Target(NamedTuple):
    name: str
    decode: Callable[[bytes], object]
    good: tuple[bytes, ...]


class Refusal(NamedTuple):
    """That a decoder refused, for comparing it with another's answer."""

    family: str


def answer_of(decode: Callable[[], object]) -> object:
    """What a decoder says: its value, or that it refused."""
    try:
        return decode()
    except MagnetarError as error:
        return Refusal(type(error).__name__)
