# SPDX-License-Identifier: Apache-2.0
"""Record types of the application and their Avro definitions: dataclasses, TypedDicts, pydantic models.

A field of a plain type is required; `X | None` is a union with null that has null as its default, which is what the
Java client makes of an object field. Values are turned into plain dicts and lists and back by walking the type once.
Decides.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints

from magnetar.errors import BadSchema

Plain: TypeAlias = Any
Definition: TypeAlias = dict[str, Any]

NAMES_MAX: Final = 10_000


class AvroName:
    """In `Annotated[int, AvroName("int")]`: an Avro type other than the usual one."""

    def __init__(self, name: str) -> None:
        self.name = name


Int32: TypeAlias = typing.Annotated[int, AvroName("int")]
Float32: TypeAlias = typing.Annotated[float, AvroName("float")]

_SIMPLE: Final[dict[Any, Any]] = {
    int: "long",
    float: "double",
    bool: "boolean",
    str: "string",
    bytes: "bytes",
    datetime: {"type": "long", "logicalType": "timestamp-millis"},
    date: {"type": "int", "logicalType": "date"},
    time: {"type": "long", "logicalType": "time-micros"},
}


def is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind) or typing.is_typeddict(kind) or hasattr(kind, "model_fields")
    )


def definition_of(kind: Any) -> Definition:
    """The Avro record of a type. Raises BadSchema for a type that has none."""
    if not is_record(kind):
        raise BadSchema(f"{kind!r} is no dataclass, TypedDict or pydantic model")
    found: Definition = _define(kind, {})
    return found


def definition_text(definition: Definition) -> bytes:
    """As schema registries keep it: compact JSON in Avro's order of keys."""
    return json.dumps(definition, separators=(",", ":")).encode()


class _Field(typing.NamedTuple):
    name: str
    kind: Any
    has_default: bool
    default: Any


def _fields(kind: Any) -> list[_Field]:
    hints = get_type_hints(kind, include_extras=True)
    if dataclasses.is_dataclass(kind):
        return [_dataclass_field(field, hints[field.name]) for field in dataclasses.fields(kind) if field.init]
    if typing.is_typeddict(kind):
        required: frozenset[str] = kind.__required_keys__
        return [_Field(name, hint if name in required else hint | None, False, None) for name, hint in hints.items()]
    return [
        _Field(name, hints[name], not field.is_required() and field.default_factory is None, field.default)
        for name, field in kind.model_fields.items()
    ]


def _dataclass_field(field: "dataclasses.Field[Any]", hint: Any) -> _Field:
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        return _Field(field.name, hint, made in ([], {}), made)
    has_default = field.default is not dataclasses.MISSING
    return _Field(field.name, hint, has_default, field.default if has_default else None)


def _define(kind: Any, known: dict[Any, str]) -> Any:
    """The Avro type; `known` has the names of records and enums that were written out already."""
    for meta in getattr(kind, "__metadata__", ()):
        if isinstance(meta, AvroName):
            return meta.name
    if get_origin(kind) is typing.Annotated:
        kind = get_args(kind)[0]
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if isinstance(kind, type) and kind in known:
        return known[kind]
    origin = get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        written = [_define(option, known) for option in options]
        return ["null", *written] if len(options) < len(get_args(kind)) else written
    if origin in (list, tuple, set, frozenset) or kind is list:
        items = get_args(kind)[0] if get_args(kind) else str
        return {"type": "array", "items": _define(items, known)}
    if origin in (dict, Mapping):
        keys, values = get_args(kind)
        if keys is not str:
            raise BadSchema(f"an Avro map has text keys, not {keys!r}")
        return {"type": "map", "values": _define(values, known)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        known[kind] = kind.__name__
        return {"type": "enum", "name": kind.__name__, "symbols": [member.name for member in kind]}
    if is_record(kind):
        return _define_record(kind, known)
    raise BadSchema(f"{kind!r} has no Avro type")


def _define_record(kind: Any, known: dict[Any, str]) -> Definition:
    if len(known) >= NAMES_MAX:
        raise BadSchema(f"a schema of more than {NAMES_MAX} named types is too large")
    known[kind] = kind.__name__
    written: list[dict[str, Any]] = []
    for field in _fields(kind):
        avro = _define(field.kind, known)
        entry: dict[str, Any] = {"name": field.name, "type": avro}
        if isinstance(avro, list) and avro[0] == "null" and (not field.has_default or field.default is None):
            entry["default"] = None
        elif field.has_default and _is_json(field.default) and not isinstance(avro, list):
            entry["default"] = field.default
        written.append(entry)
    return {"type": "record", "name": kind.__name__, "fields": written}


def _is_json(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str)) or value in ([], {})


# --- values ---------------------------------------------------------------------------------------

Convert: TypeAlias = Callable[[Any], Any]


def to_plain(value: Any) -> Plain:
    """Records, enums and containers as dicts, names and lists; everything else as it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name
    if hasattr(type(value), "model_fields"):
        return {name: to_plain(getattr(value, name)) for name in type(value).model_fields}
    return value


def reader_of(kind: Any) -> Convert:
    """A function from plain values to values of the type, made once per type."""
    return _reader(kind, {})


def _reader(kind: Any, made: dict[Any, Convert]) -> Convert:
    if get_origin(kind) is typing.Annotated:
        kind = get_args(kind)[0]
    if isinstance(kind, type) and kind in made:
        # A type that contains itself: its reader is complete by the time it is used.
        return lambda value: made[kind](value)
    origin = get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        options = [_reader(option, made) for option in get_args(kind) if option is not type(None)]
        return partial(_read_first, options)
    if origin in (list, tuple, set, frozenset):
        read = _reader(get_args(kind)[0], made)
        return lambda value: origin(read(item) for item in value)
    if origin in (dict, Mapping):
        read = _reader(get_args(kind)[1], made)
        return lambda value: {key: read(item) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value: kind[value]
    if not is_record(kind):
        return _same
    made[kind] = _same
    readers = {field.name: _reader(field.kind, made) for field in _fields(kind)}
    made[kind] = partial(_read_record, kind, readers)
    return made[kind]


def _same(value: Any) -> Any:
    return value


def _read_first(options: list[Convert], value: Any) -> Any:
    if value is None:
        return None
    for read in options[:-1]:
        try:
            return read(value)
        except (TypeError, KeyError, ValueError, AttributeError):
            continue
    return options[-1](value)


def _read_record(kind: Any, readers: Mapping[str, Convert], value: Mapping[str, Any]) -> Any:
    return kind(**{name: read(value[name]) for name, read in readers.items() if name in value})
