# SPDX-License-Identifier: Apache-2.0
"""Topics for others who speak Spark Connect: a server in this session's process, on loopback, and a view of each topic.

Clients have sessions of their own; views that all of them see are Spark's global temporary ones, and the format
`pulsar` is found by every session because a package of the name that Spark looks for is on the workers' path.
Assembles.
"""

import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from magnetar.spark.sql.table_names import HIDDEN, quoted
from magnetar.spark.sql.topics import Topics

TOPICS_MAX: Final = 1_000
_FOUND_BY_SPARK: Final = Path(__file__).parent.parent / "found_by_spark"


def server_settings(port: int) -> dict[str, str]:
    """Settings of a session that serves; the port is a real one from then on."""
    paths = (str(_FOUND_BY_SPARK), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return {
        "spark_plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark_connect_grpc_binding_address": "127.0.0.1",
        "spark_connect_grpc_binding_port": str(port or _free_port()),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ServedTopics:
    """The views; a topic that appears gets one, up to a limit."""

    def __init__(self, spark: SparkSession, connection: Mapping[str, str]) -> None:
        self._spark = spark
        self._connection = dict(connection)
        self._topics = Topics(connection)
        self._views: dict[str, None] = {}

    @property
    def views(self) -> list[str]:
        return sorted(self._views)

    def refresh(self, namespaces: Iterable[str]) -> None:
        for namespace in namespaces:
            for topic in self._topics.listed(namespace):
                view = topic.removeprefix("persistent://")
                if view not in self._views and len(self._views) < TOPICS_MAX:
                    self._make(topic, view)

    def _make(self, topic: str, view: str) -> None:
        frame = self._spark.read.format("pulsar").options(**self._connection, topic=topic, metadata="all").load()
        made = (f"{text} AS {name}" for name, text in HIDDEN.items())
        frame.selectExpr("*", *made).createOrReplaceGlobalTempView(quoted(view))
        self._views[view] = None
