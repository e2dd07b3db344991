# SPDX-License-Identifier: Apache-2.0
"""Whether the text fields of a parsed message are text: protobuf's Python parser gives those that are not as bytes.

Called after every parse of a command from outside, so that nobody behind it meets bytes where a name should be; too
slow for the metadata of every message, whose readers look at the few fields that they use. Which fields hold text is
worked out once for each kind of message.
Decides.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


class _Texts(NamedTuple):
    """Where text can be in one kind of message, here or further in."""

    single: tuple[str, ...]
    values: Callable[[Message], Any] | None
    many: tuple[str, ...]
    inner: tuple[str, ...]
    inner_many: tuple[str, ...]


_NONE: Final = _Texts((), None, (), (), ())
_KNOWN: Final[dict[type[Message], _Texts]] = {}


def unreadable(message: Message) -> str:
    """Names of text fields whose bytes are no UTF-8, here or further in; empty if there are none."""
    texts = _KNOWN.get(type(message))
    if texts is None:
        texts = _KNOWN[type(message)] = _texts_of(message.DESCRIPTOR)
    if texts is _NONE:
        return ""
    found = []
    if texts.values is not None:
        values = texts.values(message) if len(texts.single) > 1 else (texts.values(message),)
        if bytes in map(type, values):
            found += [name for name, value in zip(texts.single, values, strict=True) if type(value) is bytes]
    found += [name for name in texts.many if bytes in map(type, getattr(message, name))]
    for name in texts.inner:
        if message.HasField(name) and (inside := unreadable(getattr(message, name))):
            found.append(f"{name}.{inside}")
    for name in texts.inner_many:
        found += [f"{name}.{inside}" for each in getattr(message, name) if (inside := unreadable(each))]
    return ", ".join(found)


def _texts_of(kind: Any) -> _Texts:
    if not _has_text(kind, ()):
        return _NONE
    texts = [field for field in kind.fields if field.type == FieldDescriptor.TYPE_STRING]
    inner = [field for field in kind.fields if field.message_type is not None and _has_text(field.message_type, ())]
    single = tuple(field.name for field in texts if not field.is_repeated)
    return _Texts(
        single,
        attrgetter(*single) if single else None,
        tuple(field.name for field in texts if field.is_repeated),
        tuple(field.name for field in inner if not field.is_repeated),
        tuple(field.name for field in inner if field.is_repeated),
    )


def _has_text(kind: Any, above: tuple[Any, ...]) -> bool:
    return any(
        field.type == FieldDescriptor.TYPE_STRING
        or (
            field.message_type is not None
            and field.message_type not in above
            and _has_text(field.message_type, (*above, kind))
        )
        for field in kind.fields
    )
