# SPDX-License-Identifier: Apache-2.0
"""Python functions with type hints as steps: of whole DataFrames, or of columns, row by row.

A function of columns is called with those that its parameters name. What it returns becomes a column, or several where
the hint is a dataclass or a NamedTuple. Rows for which it raises go to the pipeline's dead-letter topic if there is
one, and otherwise fail the query.
Decides.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as functions
from pyspark.sql import types as spark

from magnetar.errors import BadSetting

RESULT: Final = "__result"
ERROR_CHARACTERS_MAX: Final = 1_000
_SPARK_OF: Final[dict[Any, spark.DataType]] = {
    int: spark.LongType(),
    float: spark.DoubleType(),
    str: spark.StringType(),
    bytes: spark.BinaryType(),
    bool: spark.BooleanType(),
    datetime: spark.TimestampType(),
    date: spark.DateType(),
    Decimal: spark.DecimalType(38, 18),
}
# Which columns a parameter takes.
_TAKES: Final[dict[Any, tuple[type[spark.DataType], ...]]] = {
    int: (spark.IntegralType,),
    float: (spark.FloatType, spark.DoubleType),
    str: (spark.StringType,),
    bytes: (spark.BinaryType,),
    bool: (spark.BooleanType,),
    datetime: (spark.TimestampType, spark.TimestampNTZType),
    date: (spark.DateType,),
    Decimal: (spark.DecimalType,),
}


class Split(NamedTuple):
    """What a step makes of its rows, and those that it could not, with `__error`."""

    good: DataFrame
    bad: DataFrame | None


def is_of_frames(function: Callable[..., Any]) -> bool:
    """Whether its parameters are DataFrames."""
    hints = _hints(function)
    return any(hint is DataFrame for hint in hints.values())


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError) as error:
        raise BadSetting(f"the type hints of {_name(function)} cannot be read: {error}") from None


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))


def spark_type(hint: Any) -> spark.DataType:
    """Raises BadSetting for a hint that Spark has no type for."""
    hint = _inner(hint)
    if hint in _SPARK_OF:
        return _SPARK_OF[hint]
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is list and len(inside) == 1:
        return spark.ArrayType(spark_type(inside[0]))
    if origin is dict and len(inside) == 2:
        return spark.MapType(spark_type(inside[0]), spark_type(inside[1]))
    fields = _fields(hint)
    if fields:
        return spark.StructType([spark.StructField(name, spark_type(one)) for name, one in fields.items()])
    raise BadSetting(f"Spark has no type for the hint {hint!r}")


def _inner(hint: Any) -> Any:
    """`X | None` is X: every column may be null."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inside = [one for one in typing.get_args(hint) if one is not type(None)]
        if len(inside) == 1:
            return inside[0]
    return hint


def _fields(hint: Any) -> dict[str, Any]:
    if inspect.isclass(hint) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")):
        return typing.get_type_hints(hint)
    return {}


def checked_columns(function: Callable[..., Any], columns: spark.StructType) -> list[str]:
    """The columns that a function is called with. Raises BadSetting where they are not there or of another type."""
    hints, found = _hints(function), []
    if "return" not in hints:
        raise BadSetting(f"{_name(function)} should say with a type hint what it returns")
    for name in inspect.signature(function).parameters:
        if name not in columns.names:
            raise BadSetting(f"{_name(function)} takes {name}; the columns are {', '.join(columns.names)}")
        hint, kind = _inner(hints.get(name)), columns[name].dataType
        if hint in _TAKES and not isinstance(kind, _TAKES[hint]):
            raise BadSetting(
                f"{_name(function)} takes {name} as {hint.__name__}, and the column is {kind.simpleString()}"
            )
        found.append(name)
    return found


def applied(frame: DataFrame, function: Callable[..., Any], into: str | None, *, keeps_bad: bool) -> Split:
    """A function of columns over a frame."""
    names = checked_columns(function, frame.schema)
    hint = _inner(_hints(function)["return"])
    kind = spark_type(hint)
    several = _fields(hint)
    called = _guarded(function, bool(several)) if keeps_bad else _called(function, bool(several))
    result = spark.StructType([spark.StructField("value", kind), spark.StructField("error", spark.StringType())])
    # Spark would otherwise call it once for each use of its result.
    made = functions.udf(called, result).asNondeterministic()
    whole = frame.withColumn(RESULT, made(*(functions.col(name) for name in names)))
    value = functions.col(f"{RESULT}.value")
    good = whole.where(functions.col(f"{RESULT}.error").isNull()) if keeps_bad else whole
    if several:
        for name in several:
            good = good.withColumn(name, value.getField(name))
    else:
        good = good.withColumn(into or _name(function), value)
    if not keeps_bad:
        return Split(good.drop(RESULT), None)
    bad = whole.where(functions.col(f"{RESULT}.error").isNotNull())
    return Split(good.drop(RESULT), bad.withColumn("__error", functions.col(f"{RESULT}.error")).drop(RESULT))


def _as_row(value: Any, several: bool) -> Any:
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return dataclasses.astuple(value) if several and is_instance else value


def _called(function: Callable[..., Any], several: bool) -> Callable[..., Any]:
    def call(*values: Any) -> tuple[Any, str | None]:
        return _as_row(function(*values), several), None

    return call


def _guarded(function: Callable[..., Any], several: bool) -> Callable[..., Any]:
    def call(*values: Any) -> tuple[Any, str | None]:
        # Whatever a user's function raises is about this row.
        try:
            return _as_row(function(*values), several), None
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]

    return call
