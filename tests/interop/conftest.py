# SPDX-License-Identifier: Apache-2.0
"""What all of the tests with Apache's own programs share: one ZooKeeper, whose sessions outlast a slow machine."""

from collections.abc import Iterator

import pytest

from tests.contracts.zookeeper_server import zookeeper_with_long_sessions
from tests.interop.apache import distribution


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[str]:
    distribution()
    with zookeeper_with_long_sessions() as address:
        yield address
