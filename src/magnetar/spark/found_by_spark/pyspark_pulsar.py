# SPDX-License-Identifier: Apache-2.0
"""What Spark finds: modules named `pyspark_…` whose `DefaultSource` is a data source.

Assembles.
"""

from magnetar.spark.source import PulsarDataSource


class DefaultSource(PulsarDataSource):
    """The format `pulsar` in sessions that registered nothing."""
