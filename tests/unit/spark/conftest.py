# SPDX-License-Identifier: Apache-2.0
"""These tests need pyspark: without it they are left out, loudly, and under CI=true that is a failure."""

from tests.spark_extra import ignored_without_pyspark

collect_ignore_glob = ignored_without_pyspark("tests/unit/spark")
