# SPDX-License-Identifier: Apache-2.0
"""Avro payloads from anyone: values that nest for ever, or arrays whose items take no bytes, are refused.

The library's compiled reader follows a schema that contains itself until the thread's stack ends, and the process with
it, and believes a count of items that take no bytes. Schemas that allow neither, which are nearly all, are read by it;
the others by the library's plain reader, whose recursion and counts have an end.
Decides.
"""

import io
from enum import IntEnum
from typing import Any, Final

import fastavro
from fastavro import _read_py
from fastavro.io import binary_decoder

from magnetar.errors import BadSchema

# Each step into a schema that contains itself takes a byte; so few nest less than the compiled reader can.
COMPILED_BYTES_MAX: Final = 500
BYTELESS_ITEMS_MAX: Final = 64 * 1024
_CARE: Final = "__magnetar_care"
# The library says no types of these.
_read_plainly: Final[Any] = _read_py.read_data
_Decoder: Final[Any] = binary_decoder.BinaryDecoder


class Care(IntEnum):
    """What a payload of a schema could do to the compiled reader."""

    NONE = 0
    DEEP = 1
    ENDLESS = 2


def read_avro(data: bytes | memoryview, writer: Any, reader: Any = None, **options: Any) -> Any:
    """The value in a payload, by the library's options. Raises BadSchema where it has no end, or what the library does.

    The schemas are as the library parsed them.
    """
    care = care_of(writer)
    if reader is not None:
        care_of(reader)  # noted on both, so that equal ones stay equal
    if care is Care.NONE or (care is Care.DEEP and len(data) <= COMPILED_BYTES_MAX):
        return fastavro.schemaless_reader(io.BytesIO(data), writer, reader, **options)
    named: dict[str, dict[str, Any]] = {"writer": {}, "reader": {}}
    fastavro.parse_schema(writer, named["writer"], _force=True)
    if reader is not None:
        fastavro.parse_schema(reader, named["reader"], _force=True)
    decoder = _BoundedDecoder(data)
    try:
        return _read_plainly(decoder, writer, named, reader, {**_DEFAULTS, **options})
    except RecursionError:
        raise BadSchema(f"a payload of {len(data)} bytes nests too deeply to be read") from None


_DEFAULTS: Final = {
    "return_record_name": False,
    "return_record_name_override": False,
    "return_named_type": False,
    "return_named_type_override": False,
    "handle_unicode_errors": "strict",
}


class _BoundedDecoder(_Decoder):  # type: ignore[misc]
    """Gives no more items than the payload has bytes, and some that take none."""

    def __init__(self, data: bytes | memoryview) -> None:
        super().__init__(io.BytesIO(data))
        self._items_left = len(data) + BYTELESS_ITEMS_MAX

    def iter_array(self) -> Any:
        for item in super().iter_array():
            self._items_left -= 1
            if self._items_left < 0:
                raise BadSchema("an array has more items than its payload can hold")
            yield item


def care_of(schema: Any) -> Care:
    """Noted on a schema that is a record, which nearly all are."""
    if not isinstance(schema, dict):
        return _looked(schema)
    if _CARE not in schema:
        schema[_CARE] = _looked(schema)
    care: Care = schema[_CARE]
    return care


def _looked(schema: Any) -> Care:
    try:
        return _Look().at(schema, (), ())[0]
    except RecursionError:
        return Care.ENDLESS


class _Look:
    """One walk over a schema; named types are looked at where they are defined."""

    def __init__(self) -> None:
        self._takes_bytes: dict[str, bool] = {}

    def at(self, schema: Any, inside: tuple[str, ...], since_byte: tuple[str, ...]) -> tuple[Care, bool]:
        """The care for this part, and whether its values take bytes; `inside` which records it stands, and which of
        them without a byte between.
        """
        if isinstance(schema, str):
            care = Care.ENDLESS if schema in since_byte else Care.DEEP if schema in inside else Care.NONE
            return care, self._takes_bytes.get(schema, schema != "null")
        if isinstance(schema, list):
            return max((self.at(each, inside, ())[0] for each in schema), default=Care.NONE), True
        kind = schema["type"]
        if kind == "array":
            care, takes_bytes = self.at(schema["items"], inside, ())
            return care if takes_bytes else Care.ENDLESS, True
        if kind == "map":
            return self.at(schema["values"], inside, ())[0], True
        if kind == "fixed":
            self._takes_bytes[schema["name"]] = schema["size"] > 0
            return Care.NONE, schema["size"] > 0
        if kind not in ("record", "error"):
            return self.at(kind, inside, since_byte) if not isinstance(kind, str) else (Care.NONE, kind != "null")
        name = schema["name"]
        care, takes_bytes = Care.NONE, False
        for field in schema["fields"]:
            # A byte of the field before is one between, too, but then the payload is longer than the nesting is deep.
            found, takes = self.at(field["type"], (*inside, name), () if takes_bytes else (*since_byte, name))
            care, takes_bytes = max(care, found), takes_bytes or takes
        self._takes_bytes[name] = takes_bytes
        return care, takes_bytes
