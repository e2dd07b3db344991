# SPDX-License-Identifier: Apache-2.0
"""Which schemas may follow which, by strategy; and whether a definition is one of its type at all.

The newest version stands last in every list. Strategies that are not transitive look at the newest alone.
IncompatibleSchema carries the reason. Never knows topics.
Decides.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from magnetar.broker.policies.values import SchemaCompatibility
from magnetar.broker.schemas import avro, protobuf
from magnetar.broker.schemas.schema import Schema, SchemaType, key_and_value
from magnetar.errors import IncompatibleSchema

T = TypeVar("T")

_TRANSITIVE = (
    SchemaCompatibility.BACKWARD_TRANSITIVE,
    SchemaCompatibility.FORWARD_TRANSITIVE,
    SchemaCompatibility.FULL_TRANSITIVE,
)
_BACKWARD = (SchemaCompatibility.BACKWARD, SchemaCompatibility.BACKWARD_TRANSITIVE)
_FORWARD = (SchemaCompatibility.FORWARD, SchemaCompatibility.FORWARD_TRANSITIVE)


def is_transitive(strategy: SchemaCompatibility) -> bool:
    return strategy in _TRANSITIVE


def check_definition(schema: Schema) -> None:
    """Raise IncompatibleSchema unless the definition is one of the schema's type."""
    kind = schema.type
    if kind.is_avro_like:
        avro.parse(schema.definition)
    elif kind is SchemaType.PROTOBUF_NATIVE:
        protobuf.parse(schema.definition)
    elif kind is SchemaType.KEY_VALUE:
        for part in key_and_value(schema):
            if part.definition or part.type.is_avro_like:
                check_definition(part)
    elif kind is SchemaType.AUTO_CONSUME:
        raise IncompatibleSchema("AUTO_CONSUME is no schema that a topic can have")
    elif kind.is_primitive and schema.definition:
        raise IncompatibleSchema(
            f"Invalid schema definition data for {kind.name} schema: its length should be zero,"
            f" but {len(schema.definition)} bytes are found"
        )


def is_same(one: Schema, other: Schema) -> bool:
    """Whether two schemas are one version: by their definitions, Avro's by what they mean."""
    if one.type.is_avro_like and other.type.is_avro_like:
        if one.definition == other.definition:
            return one.type is other.type
        try:
            return one.type is other.type and avro.parse(one.definition) == avro.parse(other.definition)
        except IncompatibleSchema:
            return False
    if one.type is SchemaType.KEY_VALUE and other.type is SchemaType.KEY_VALUE:
        pairs = zip(key_and_value(one), key_and_value(other), strict=True)
        return all(left.type is right.type and is_same(left, right) for left, right in pairs)
    return one.type is other.type and one.definition == other.definition


def check_compatible(new: Schema, existing: Sequence[Schema], strategy: SchemaCompatibility) -> None:
    """Raise IncompatibleSchema unless the new schema may follow the existing ones, the newest of which is last."""
    if strategy is SchemaCompatibility.ALWAYS_COMPATIBLE or not existing:
        return
    compared = list(existing) if is_transitive(strategy) else [existing[-1]]
    for old in reversed(compared):
        if why := _why_not(new, old, strategy):
            raise IncompatibleSchema(f"Unable to read schema: {why}")


def _why_not(new: Schema, old: Schema, strategy: SchemaCompatibility) -> str:
    if new.type is not old.type:
        return f"Incompatible schema: exists schema type {old.type.name}, new schema type {new.type.name}"
    if strategy is SchemaCompatibility.ALWAYS_INCOMPATIBLE:
        return f"the strategy is {strategy.name}"
    if new.type is SchemaType.KEY_VALUE:
        pairs = zip(key_and_value(new), key_and_value(old), ("key", "value"), strict=True)
        reasons = (f"{which}: {why}" for left, right, which in pairs if (why := _why_not(left, right, strategy)))
        return next(reasons, "")
    if new.type.is_avro_like:
        return _in_directions(avro.parse(new.definition), avro.parse(old.definition), avro.why_unreadable, strategy)
    if new.type is SchemaType.PROTOBUF_NATIVE:
        return _in_directions(
            protobuf.parse(new.definition), protobuf.parse(old.definition), protobuf.why_unreadable, strategy
        )
    return ""


def _in_directions(new: T, old: T, why_unreadable: Callable[[T, T], str], strategy: SchemaCompatibility) -> str:
    """Backward: the new schema reads old data. Forward: the old one reads new data. Full: both."""
    why = "" if strategy in _FORWARD else why_unreadable(new, old)
    return why or ("" if strategy in _BACKWARD else why_unreadable(old, new))
