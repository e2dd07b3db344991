# SPDX-License-Identifier: Apache-2.0
"""A topic's schema and a DataFrame's columns are one: written columns come back by the broker's own schema.

No Spark session: readers and writers are called as Spark calls them.
"""

import pyarrow as pa
import pytest
from pyspark.sql import types

from magnetar.spark.rows import arrow_schema
from magnetar.spark.source import PulsarDataSource
from tests.processes import StandaloneProcess

COLUMNS = types.StructType(
    [
        types.StructField("name", types.StringType()),
        types.StructField("total", types.LongType()),
        types.StructField("tags", types.ArrayType(types.StringType())),
    ]
)
ROWS = [{"name": "a", "total": 1, "tags": ["x"]}, {"name": None, "total": 2, "tags": []}]


@pytest.mark.feature("F-SPK-07")
@pytest.mark.parametrize("form", ["json", "avro"])
def test_columns_come_back_by_the_topics_schema(standalone: StandaloneProcess, topic: str, form: str) -> None:
    options = {"service.url": standalone.service_url, "topic": topic}
    writer = PulsarDataSource({**options, "schemaType": form}).writer(COLUMNS, False)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(COLUMNS))]))])
    source = PulsarDataSource({**options, "metadata": "none"})
    columns = source.schema()
    assert isinstance(columns, types.StructType)
    assert columns == COLUMNS
    reader = source.reader(columns)
    read = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert read == ROWS
