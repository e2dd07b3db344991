# SPDX-License-Identifier: Apache-2.0
"""What a query needs of each table, read from Spark's optimised plan.

Columns, keys, and how many rows are enough. Where the plan does not say it plainly, everything is needed. Filters on
partition, number and publish time are not looked for: Spark hands those to the source itself.
Carries.
"""

from dataclasses import dataclass
from typing import Any, Final

from magnetar.spark.sql.jvm import kind, names_in, sequence

# These hand on the rows of the one table below them.
_TRANSPARENT: Final = frozenset({"Filter", "LocalLimit", "GlobalLimit", "Sort", "RepartitionByExpression"})
_DECIDING: Final = frozenset({"Project", "Aggregate"})
_KEY: Final = "__key"


@dataclass(slots=True)
class Needs:
    """None: everything."""

    columns: frozenset[str] | None = frozenset()
    keys: frozenset[str] | None = frozenset()
    rows_max: int | None = None
    uses: int = 0

    def add(self, columns: frozenset[str] | None, keys: frozenset[str] | None) -> None:
        self.columns = None if columns is None or self.columns is None else self.columns | columns
        self.keys = None if keys is None or self.keys is None else self.keys | keys
        self.uses += 1


def needs_of(plan: Any) -> dict[int, Needs]:
    """By the number of the stand-in's data set."""
    found: dict[int, Needs] = {}
    _walk(plan, [], found)
    if len(found) == 1 and sum(one.uses for one in found.values()) == 1:
        next(iter(found.values())).rows_max = _limit(plan)
    return found


def stand_in_number(plan: Any) -> int:
    """Of the one data set that a stand-in's plan reads."""
    while kind(plan) != "LogicalRDD":
        (plan,) = sequence(plan.children())
    return int(plan.rdd().id())


def _walk(plan: Any, above: list[Any], found: dict[int, Needs]) -> None:
    if kind(plan) == "LogicalRDD":
        found.setdefault(int(plan.rdd().id()), Needs()).add(_columns(above), _keys(above))
        return
    for one in sequence(plan.children()):
        _walk(one, [plan, *above], found)
    for one in sequence(plan.subqueries()):
        _walk(one, [], found)


def _columns(above: list[Any]) -> frozenset[str] | None:
    used: set[str] = set()
    for node in above:
        if kind(node) not in _TRANSPARENT | _DECIDING:
            return None
        used.update(names_in(node.references()))
        if kind(node) in _DECIDING:
            return frozenset(used)
    return None


def _keys(above: list[Any]) -> frozenset[str] | None:
    """Only rows with these keys can pass the filters right above the table."""
    for node in above:
        if kind(node) != "Filter":
            return None
        for condition in _conjuncts(node.condition()):
            keys = _keys_of(condition)
            if keys is not None:
                return keys
    return None


def _conjuncts(condition: Any) -> list[Any]:
    if kind(condition) == "And":
        return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]
    return [condition]


def _keys_of(condition: Any) -> frozenset[str] | None:
    match kind(condition):
        case "EqualTo":
            sides = [condition.left(), condition.right()]
            literals = [one for one in sides if kind(one) == "Literal"]
            if len(literals) == 1 and any(_is_key_as_text(one) for one in sides):
                return _texts([literals[0].value()])
        case "In" if _is_key_as_text(condition.value()):
            values = sequence(condition.list())
            if all(kind(one) == "Literal" for one in values):
                return _texts([one.value() for one in values])
        case "InSet" if _is_key_as_text(condition.child()):
            return _texts(sequence(condition.hset().toSeq()))
    return None


def _is_key_as_text(expression: Any) -> bool:
    if kind(expression) != "Cast" or expression.dataType().simpleString() != "string":
        return False
    child = expression.child()
    return kind(child) == "AttributeReference" and child.name() == _KEY


def _texts(values: list[Any]) -> frozenset[str] | None:
    texts = frozenset(
        str(value if isinstance(value, str) else value.toString()) for value in values if value is not None
    )
    # The option is a list with commas between; a key that would not survive that is left to Spark.
    return None if any("," in text or text != text.strip() or not text for text in texts) else texts


def _limit(plan: Any) -> int | None:
    """How many rows are enough, where the query takes the first ones as they are."""
    if kind(plan) != "GlobalLimit":
        return None
    enough = plan.limitExpr()
    (below,) = sequence(plan.children())
    while kind(below) in ("LocalLimit", "Project"):
        (below,) = sequence(below.children())
    if kind(below) != "LogicalRDD" or kind(enough) != "Literal":
        return None
    return int(str(enough.value()))
