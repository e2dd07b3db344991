# SPDX-License-Identifier: Apache-2.0
"""What all of the tests with Apache's own programs share: one ZooKeeper, whose sessions outlast a slow machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.zookeeper_server import zookeeper_with_long_sessions
from tests.interop.apache import distribution
from tests.spark_extra import ignored_without_pyspark

collect_ignore_glob = ignored_without_pyspark("tests/interop/test_spark_on_apache.py", "test_spark_*.py")

# Against a test that hangs: each starts several of Apache's programs, one after another.
_LIMIT_S = 3_600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(_LIMIT_S))


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[str]:
    distribution()
    with zookeeper_with_long_sessions() as address:
        yield address
