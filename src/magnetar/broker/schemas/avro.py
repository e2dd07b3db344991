# SPDX-License-Identifier: Apache-2.0
"""Avro's rules of resolution: whether data written with one schema can be read with another, and why not.

Works on what fastavro parses: names are full, a named type that was defined before stands as its name.
Never reads data.
Decides.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from magnetar.errors import IncompatibleSchema

# What a reader of the first type can read besides itself.
_PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}
# Types within types within types, as JSON: deeper ones could be parsed and then not compared.
DEPTH_MAX: Final = 200
_IGNORED: Final = ("doc", "__fastavro_parsed", "__named_schemas")

Json = Any


class AvroSchema:
    """A parsed definition. Equal when everything but documentation is."""

    __slots__ = ("named", "root")

    def __init__(self, root: Json, named: Mapping[str, Json]) -> None:
        self.root = root
        self.named = named

    def resolved(self, schema: Json) -> Json:
        """The definition behind a name; anything else as it is."""
        if isinstance(schema, str):
            return self.named.get(schema, schema)
        return schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and _plain(self.root) == _plain(other.root)

    def __hash__(self) -> int:
        return hash(json.dumps(_plain(self.root), sort_keys=True))


def parse(definition: bytes) -> AvroSchema:
    """IncompatibleSchema when the bytes are no Avro schema."""
    # Imported late: a broker whose topics have no schemas starts without it.
    import fastavro

    try:
        named: dict[str, Any] = {}
        root = fastavro.parse_schema(_checked(json.loads(definition)), named_schemas=named)
    except (ValueError, TypeError, KeyError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise IncompatibleSchema(f"Invalid schema definition data: {error}") from error
    except fastavro.schema.UnknownType as error:
        raise IncompatibleSchema(f"Invalid schema definition data: unknown type {error}") from error
    return AvroSchema(root, named)


def _checked(definition: Json) -> Json:
    """ValueError for what is nested too deeply."""
    level: list[Json] = [definition]
    for _ in range(DEPTH_MAX):
        inside = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        if not inside:
            return definition
        level = [value for values in inside for value in values]
    raise ValueError(f"it is nested more than {DEPTH_MAX} levels deep")


def why_unreadable(reader: AvroSchema, writer: AvroSchema) -> str:
    """Why data of the writer cannot be read by the reader; empty when it can."""
    return _Resolution(reader, writer).check(reader.root, writer.root, "")


class _Resolution:
    """One comparison; pairs of named types that are being compared are taken as fine when they are met again."""

    __slots__ = ("_pairs", "_reader", "_writer")

    def __init__(self, reader: AvroSchema, writer: AvroSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._pairs: dict[tuple[str, str], None] = {}

    def check(self, reader: Json, writer: Json, at: str) -> str:
        reader, writer = self._reader.resolved(reader), self._writer.resolved(writer)
        if isinstance(writer, list):
            for branch in writer:
                if why := self.check(reader, branch, at):
                    return why
            return ""
        if isinstance(reader, list):
            if any(not self.check(branch, writer, at) for branch in reader):
                return ""
            return f"{at or '/'}: no branch of the reader's union takes the writer's {_type(writer)}"
        reader_type, writer_type = _type(reader), _type(writer)
        if reader_type != writer_type:
            if writer_type in _PROMOTIONS.get(reader_type, ()):
                return ""
            return f"{at or '/'}: reader's type {reader_type} is not compatible with the writer's {writer_type}"
        return self._same_type(reader_type, reader, writer, at)

    def _same_type(self, type_: str, reader: Json, writer: Json, at: str) -> str:
        if type_ == "array":
            return self.check(reader["items"], writer["items"], f"{at}/items")
        if type_ == "map":
            return self.check(reader["values"], writer["values"], f"{at}/values")
        if type_ in ("record", "error"):
            # Records match by their fields: upstream's resolution does not look at their names.
            return self._record(reader, writer, at)
        if type_ not in ("enum", "fixed"):
            return ""
        if not _same_name(reader, writer):
            return f"{at or '/'}: the {type_} {writer['name']} is named {reader['name']} by the reader"
        if type_ == "fixed":
            sizes = reader["size"], writer["size"]
            return "" if sizes[0] == sizes[1] else f"{at or '/'}: fixed sizes {sizes[1]} and {sizes[0]} differ"
        return _enum(reader, writer, at)

    def _record(self, reader: Json, writer: Json, at: str) -> str:
        pair = (reader["name"], writer["name"])
        if pair in self._pairs:
            return ""
        self._pairs[pair] = None
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            path = f"{at}/{field['name']}"
            source = next((written[name] for name in _names(field) if name in written), None)
            if source is not None:
                if why := self.check(field["type"], source["type"], path):
                    return why
            elif "default" not in field and not self._has_enum_default(field["type"]):
                return f"{path}: the reader's field is new and has no default"
        return ""

    def _has_enum_default(self, schema: Json) -> bool:
        resolved = self._reader.resolved(schema)
        return isinstance(resolved, dict) and resolved.get("type") == "enum" and "default" in resolved


def _type(schema: Json) -> str:
    if isinstance(schema, dict):
        kind = schema["type"]
        return kind if isinstance(kind, str) else _type(kind)
    return str(schema)


def _names(named: Json) -> list[str]:
    return [named["name"], *named.get("aliases", ())]


def _same_name(reader: Json, writer: Json) -> bool:
    """By the short name, as upstream compares; or the reader knows the writer's name as an alias."""
    writer_name = writer["name"]
    short = writer_name.rpartition(".")[2]
    if reader["name"].rpartition(".")[2] == short:
        return True
    return any(alias in (writer_name, short) for alias in reader.get("aliases", ()))


def _enum(reader: Json, writer: Json, at: str) -> str:
    missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
    if not missing or "default" in reader:
        return ""
    return f"{at or '/'}: the reader does not know the symbols {', '.join(missing)}"


def _plain(schema: Json) -> Json:
    if isinstance(schema, dict):
        return {name: _plain(value) for name, value in schema.items() if name not in _IGNORED}
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    return schema
