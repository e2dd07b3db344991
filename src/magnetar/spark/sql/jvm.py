# SPDX-License-Identifier: Apache-2.0
"""Spark's own trees, seen from Python: the parsed statement and the optimised plan.

The only place of this room that knows how Scala's collections and plan nodes are asked. Changes nothing.
Carries.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

_LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical."


class Nodes:
    """Questions to the nodes of one session's plans."""

    def __init__(self, spark: SparkSession) -> None:
        self._session: Any = spark._jsparkSession
        jvm: Any = spark._jvm
        self._sessions: Any = SparkSession._get_j_spark_session_class(jvm)
        class_of = jvm.java.lang.Class.forName
        self._plan = class_of(_LOGICAL + "LogicalPlan")
        self._statements = [class_of(_LOGICAL + name) for name in ("Command", "ParsedStatement")]

    def parsed(self, text: str) -> Any:
        """Raises Spark's ParseException. The parser reads the settings of whichever session is active."""
        self._sessions.setActiveSession(self._session)
        return self._session.sessionState().sqlParser().parsePlan(text)

    def is_query(self, plan: Any) -> bool:
        """Whether it gives rows and changes nothing."""
        return not any(kind.isInstance(plan) for kind in self._statements)

    def beneath(self, plan: Any) -> Iterator[Any]:
        """Its children, its common table expressions and the queries inside its expressions."""
        for one in sequence(plan.children()):
            yield one
        for one in sequence(plan.innerChildren()):
            if self._plan.isInstance(one):
                yield one


def sequence(scala: Any) -> list[Any]:
    return [scala.apply(index) for index in range(scala.size())]


def kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def optimised(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().optimizedPlan()


def names_in(attributes: Any) -> list[str]:
    """Of a set of attributes."""
    return [one.name() for one in sequence(attributes.toSeq())]


def rows_read(frame: DataFrame) -> int:
    """How many rows the sources of a query gave, after it ran: Spark's counter."""
    return sum(_counted(frame._jdf.queryExecution().executedPlan()))


def _counted(plan: Any) -> Iterator[int]:
    if kind(plan) == "AdaptiveSparkPlanExec":
        yield from _counted(plan.executedPlan())
        return
    if kind(plan).endswith("QueryStageExec"):
        yield from _counted(plan.plan())
        return
    found = sequence(plan.children())
    if not found and plan.metrics().contains("numOutputRows"):
        yield int(plan.metrics().apply("numOutputRows").value())
    for one in found:
        yield from _counted(one)
