# SPDX-License-Identifier: Apache-2.0
"""The tables that a statement names, as Spark's parser found them, and the statement with other names in their places.

Carries.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from magnetar.spark.sql.jvm import Nodes, kind, sequence
from magnetar.spark.sql.table_names import quoted


class Relation(NamedTuple):
    """A table's name in a statement: where it stands, its parts, and whether it has an alias there."""

    start: int
    stop: int
    parts: tuple[str, ...]
    has_alias: bool


def relations_in(nodes: Nodes, plan: Any) -> list[Relation]:
    """From the first to the last; without the names of common table expressions."""
    found: dict[int, Relation] = {}
    common: set[str] = set()
    _walk(nodes, plan, "", found, common)
    return [
        found[start]
        for start in sorted(found)
        if len(found[start].parts) > 1 or found[start].parts[0].lower() not in common
    ]


def _walk(nodes: Nodes, plan: Any, parent: str, found: dict[int, Relation], common: set[str]) -> None:
    name = kind(plan)
    if name == "UnresolvedRelation":
        origin = plan.origin()
        start = origin.startIndex().get()
        parts = tuple(str(part) for part in sequence(plan.multipartIdentifier()))
        found[start] = Relation(start, origin.stopIndex().get() + 1, parts, parent == "SubqueryAlias")
        return
    if name == "UnresolvedWith":
        common |= {str(one._1()).lower() for one in sequence(plan.cteRelations())}
    for one in nodes.beneath(plan):
        _walk(nodes, one, name, found, common)


def renamed(text: str, relations: list[Relation], view_of: Callable[[Relation], str]) -> str:
    """The statement with views in the places of tables; a table without alias keeps its last name."""
    pieces, behind = [], 0
    for one in relations:
        alias = "" if one.has_alias else f" AS {quoted(one.parts[-1])}"
        pieces += [text[behind : one.start], quoted(view_of(one)), alias]
        behind = one.stop
    return "".join([*pieces, text[behind:]])
