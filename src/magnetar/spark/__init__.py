# SPDX-License-Identifier: Apache-2.0
"""Topics as DataFrames: the Python data source `pulsar` (batch, stream, sink), SQL over topics, pipelines.

`register(spark)` makes `spark.read.format("pulsar")` and its siblings work; `session()` is a ready session. Talks to
brokers as a client does and never imports the broker. pyspark is imported here and nowhere else.
"""

from magnetar.spark.entrance import explain as explain
from magnetar.spark.entrance import register as register
from magnetar.spark.entrance import session as session
