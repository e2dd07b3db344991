# SPDX-License-Identifier: Apache-2.0
"""Streaming queries run to their end, on machines that are busy with other tests too."""

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

LIMIT_S = 600
STARTS_MAX = 20


def run_to_end(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query over what is there now, and wait until all of it is done.

    Spark waits for ten seconds, whatever its settings are, for the Python process of a stream's source, which a busy
    machine may not have for it; nothing was read then, and the query is started again. Raises what else ends it.
    """
    for _ in range(STARTS_MAX):
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(LIMIT_S), query.lastProgress
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return query
    raise AssertionError("Spark's Python process never came up")
