# SPDX-License-Identifier: Apache-2.0
"""How a program gets in: register the data source in a session, or have a session made.

Assembles.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from magnetar.spark.source import PulsarDataSource

# Filters reach a Python data source only if this is on, and a source that takes them is refused if it is off.
_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
_QUICK_START = str(Path(__file__).parent / "quick_start")


def register(spark: SparkSession) -> None:
    """Make `format("pulsar")` known to a session."""
    spark.conf.set(_PUSH_DOWN, "true")
    try:
        spark.dataSource.register(PulsarDataSource)
    except AnalysisException as error:
        # Where Spark has found the package by its name, there is nothing to register.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def explain(options: Mapping[str, str]) -> str:
    """What a batch read with these options would read: one line for each task, with how much it is and through whom.

    Spark's own plan has no room for it.
    """
    source = PulsarDataSource(dict(options))
    columns = source.schema()
    assert isinstance(columns, StructType)
    return "\n".join(str(span) for span in source.reader(columns).plan())


def session(name: str = "magnetar", *, master: str = "local[*]", **settings: str) -> SparkSession:
    """A session with everything registered; `settings` are Spark's, with `_` for `.` (`spark_ui_enabled="false"`)."""
    # Workers run this very Python, which has what is imported here; Spark would take the first on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _start_quickly()
    builder = SparkSession.builder.appName(name).master(master)
    # Offsets and metadata are in UTC, and so are results.
    for key, value in {"spark_sql_session_timeZone": "UTC", **settings}.items():
        builder = builder.config(key.replace("_", "."), value)
    made = builder.getOrCreate()
    register(made)
    return made


def _start_quickly() -> None:
    """Processes that Spark starts need not compile pyspark again (docs/decisions/0271)."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _QUICK_START not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_QUICK_START, *paths)))
