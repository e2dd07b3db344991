# SPDX-License-Identifier: Apache-2.0
"""What the tests of faults share."""

from collections.abc import Iterator

import pytest

from tests.faults.client_threads import ClientThread


@pytest.fixture(autouse=True)
def no_thread_outlives_its_test() -> Iterator[None]:
    yield
    ClientThread.end_all()
