# SPDX-License-Identifier: Apache-2.0
"""A pipeline in Python: how often each user was seen, with state of our own; `magnetar pipeline run visits.py`."""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from magnetar.spark.pipelines.pipeline import Pipeline

pipeline = Pipeline(
    "visits",
    variables={
        "topic": "persistent://public/default/visits",
        "out": "persistent://public/default/visits-counted",
        "checkpoint": "checkpoints/visits",
    },
    checkpoint="${checkpoint}",
    trigger={"every": "5s"},
)
pipeline.source("visits", topic="${topic}", startingOffsets="earliest")
pipeline.sql("users", "select cast(__key as string) as user from visits where __key is not null")


def count(key: Any, rows: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    seen = (state.get[0] if state.exists else 0) + sum(len(part) for part in rows)
    state.update((seen,))
    yield pd.DataFrame({"user": [key[0]], "seen": [seen]})


@pipeline.step
def counted(users: DataFrame) -> DataFrame:
    return users.groupBy("user").applyInPandasWithState(
        count, "user string, seen long", "seen long", "append", GroupStateTimeout.NoTimeout
    )


pipeline.sink("counted", topic="${out}", schemaType="json")
