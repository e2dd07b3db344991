# SPDX-License-Identifier: Apache-2.0
"""Schemas: from values to payloads and back, and what the broker is told about them.

Here are the interface and the primitive types, in the byte forms of the Java client. Records are in `schema_json.py`
and `schema_avro.py`.
Decides.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from magnetar.client.schema_info import BYTES_INFO, SchemaInfo, SchemaType
from magnetar.errors import BadSchema

if TYPE_CHECKING:
    from magnetar.client.message import Message

T = TypeVar("T")

FetchSchema: TypeAlias = Callable[[bytes | None], Awaitable[tuple[SchemaInfo, bytes] | None]]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1)
_DAY: Final = timedelta(days=1)


class Schema(ABC, Generic[T]):
    """How values of one type become payloads."""

    info: SchemaInfo
    needs_preparing = False
    """Whether a message must be prepared before its value can be asked for."""

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """Raises BadSchema if the value does not fit."""

    @abstractmethod
    def decode(self, data: bytes) -> T:
        """Raises BadSchema if the bytes do not fit."""

    def decode_message(self, message: "Message[Any]") -> T:
        """As decode, for schemas that need more than the payload."""
        return self.decode(message.data())

    def key_of(self, value: T) -> str | bytes | None:
        """The message key that the value itself carries, if it does."""
        return None

    async def bind(self, fetch: "FetchSchema") -> None:
        """Called once, before the schema is used with a topic: `fetch` asks for the topic's own schemas."""

    async def prepare(self, message: "Message[Any]") -> None:
        """Called before a message is handed out: fetch what decoding it will need."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.info.type.name})"


class BytesSchema(Schema[bytes]):
    info = BYTES_INFO

    def encode(self, value: bytes) -> bytes:
        if type(value) is bytes:
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise BadSchema(f"a producer without a schema sends bytes, not {type(value).__name__}")

    def decode(self, data: bytes) -> bytes:
        return data


class StringSchema(Schema[str]):
    info = SchemaInfo(SchemaType.STRING, "String")

    def encode(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise BadSchema(f"a string schema takes str, not {type(value).__name__}")
        return value.encode()

    def decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise BadSchema(f"a payload of {len(data)} bytes is no UTF-8 text") from error


class PackedSchema(Schema[T]):
    """A number of fixed size, big-endian."""

    def __init__(self, kind: SchemaType, name: str, form: str, python_type: type) -> None:
        self.info = SchemaInfo(kind, name)
        self._form = struct.Struct(form)
        self._type = python_type

    def encode(self, value: T) -> bytes:
        if not isinstance(value, self._type) or (isinstance(value, bool) and self._type is not bool):
            raise BadSchema(f"{self.info.name} takes {self._type.__name__}, not {type(value).__name__}")
        try:
            return self._form.pack(value)
        except struct.error as error:
            raise BadSchema(f"{value!r} does not fit into {self.info.name}: {error}") from error

    def decode(self, data: bytes) -> T:
        if len(data) != self._form.size:
            raise BadSchema(f"{self.info.name} has {self._form.size} bytes, not {len(data)}")
        value: T = self._form.unpack(data)[0]
        return value


class _FloatSchema(PackedSchema[float]):
    def encode(self, value: float) -> bytes:
        return super().encode(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)


class TimestampSchema(Schema[datetime]):
    """Milliseconds since 1970; a naive datetime is taken as UTC."""

    def __init__(self, kind: SchemaType = SchemaType.TIMESTAMP, name: str = "Timestamp") -> None:
        self.info = SchemaInfo(kind, name)

    def encode(self, value: datetime) -> bytes:
        if not isinstance(value, datetime):
            raise BadSchema(f"{self.info.name} takes datetime, not {type(value).__name__}")
        return struct.pack(">q", (_aware(value) - _EPOCH) // timedelta(milliseconds=1))

    def decode(self, data: bytes) -> datetime:
        return _moment(self.info.name, milliseconds=_number(data, ">q", self.info.name))


class InstantSchema(Schema[datetime]):
    """Seconds and nanoseconds since 1970."""

    info = SchemaInfo(SchemaType.INSTANT, "Instant")

    def encode(self, value: datetime) -> bytes:
        since = _aware(value) - _EPOCH
        seconds, rest = divmod(since, timedelta(seconds=1))
        return struct.pack(">qi", seconds, rest // timedelta(microseconds=1) * 1000)

    def decode(self, data: bytes) -> datetime:
        if len(data) != 12:
            raise BadSchema(f"Instant has 12 bytes, not {len(data)}")
        seconds, nanos = struct.unpack(">qi", data)
        return _moment("Instant", seconds=seconds, microseconds=nanos // 1000)


class LocalDateSchema(Schema[date]):
    info = SchemaInfo(SchemaType.LOCAL_DATE, "LocalDate")

    def encode(self, value: date) -> bytes:
        return struct.pack(">q", (value - _EPOCH_DAY) // _DAY)

    def decode(self, data: bytes) -> date:
        return _moment("LocalDate", days=_number(data, ">q", "LocalDate")).date()


class LocalTimeSchema(Schema[time]):
    """Nanoseconds of the day; Python keeps microseconds."""

    info = SchemaInfo(SchemaType.LOCAL_TIME, "LocalTime")

    def encode(self, value: time) -> bytes:
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return struct.pack(">q", seconds * 1_000_000_000 + value.microsecond * 1000)

    def decode(self, data: bytes) -> time:
        micros = _number(data, ">q", "LocalTime") // 1000
        if not 0 <= micros < 86_400_000_000:
            raise BadSchema(f"{micros} microseconds are no time of day")
        return (_EPOCH + timedelta(microseconds=micros)).time()


class LocalDateTimeSchema(Schema[datetime]):
    """A date and a time of day without a zone: days, then nanoseconds."""

    info = SchemaInfo(SchemaType.LOCAL_DATE_TIME, "LocalDateTime")

    def encode(self, value: datetime) -> bytes:
        return LocalDateSchema().encode(value.date()) + LocalTimeSchema().encode(value.time())

    def decode(self, data: bytes) -> datetime:
        return datetime.combine(LocalDateSchema().decode(data[:8]), LocalTimeSchema().decode(data[8:]))


def _moment(name: str, **since: int) -> datetime:
    """So long after 1970. Raises BadSchema for what Python has no year for."""
    try:
        return _EPOCH + timedelta(**since)
    except OverflowError as error:
        raise BadSchema(f"a payload is no {name} of the years 1 to 9999") from error


def _aware(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _number(data: bytes, form: str, name: str) -> int:
    if len(data) != struct.calcsize(form):
        raise BadSchema(f"{name} has {struct.calcsize(form)} bytes, not {len(data)}")
    number: int = struct.unpack(form, data)[0]
    return number


BYTES: Final = BytesSchema()
STRING: Final = StringSchema()
BOOLEAN: Final = PackedSchema[bool](SchemaType.BOOLEAN, "Boolean", ">?", bool)
INT8: Final = PackedSchema[int](SchemaType.INT8, "INT8", ">b", int)
INT16: Final = PackedSchema[int](SchemaType.INT16, "INT16", ">h", int)
INT32: Final = PackedSchema[int](SchemaType.INT32, "INT32", ">i", int)
INT64: Final = PackedSchema[int](SchemaType.INT64, "INT64", ">q", int)
FLOAT: Final = _FloatSchema(SchemaType.FLOAT, "Float", ">f", float)
DOUBLE: Final = _FloatSchema(SchemaType.DOUBLE, "Double", ">d", float)
TIMESTAMP: Final = TimestampSchema()
DATE: Final = TimestampSchema(SchemaType.DATE, "Date")
TIME: Final = TimestampSchema(SchemaType.TIME, "Time")
INSTANT: Final = InstantSchema()
LOCAL_DATE: Final = LocalDateSchema()
LOCAL_TIME: Final = LocalTimeSchema()
LOCAL_DATE_TIME: Final = LocalDateTimeSchema()
