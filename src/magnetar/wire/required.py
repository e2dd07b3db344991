# SPDX-License-Identifier: Apache-2.0
"""Whether a parsed message has all that it must have: protobuf's Python parser lets required fields be missing.

Called after every parse of bytes from outside. On the envelope of a command it is slow, because that has a field for
each command; asked of the one message inside it is quick.
Decides.
"""

from collections.abc import Iterator

from google.protobuf.message import Message


def missing(message: Message) -> str:
    """Names of required fields that are not set, here or further in; empty if there are none.

    A required enum with a number that we do not know counts as not set.
    """
    return "" if message.IsInitialized() else ", ".join(_missing(message, ""))


def _missing(message: Message, prefix: str) -> Iterator[str]:
    for field in message.DESCRIPTOR.fields:
        if field.is_required and not message.HasField(field.name):
            yield prefix + field.name
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                yield from _missing(inner, f"{prefix}{field.name}.")
