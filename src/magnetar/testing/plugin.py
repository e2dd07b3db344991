# SPDX-License-Identifier: Apache-2.0
"""pytest fixtures, found by pytest itself once Magnetar is installed.

`pulsar` is a broker of the test's own; `pulsar_url` its service URL. `@pytest.mark.pulsar(clock="manual")` passes
arguments to it. Magnetar is imported when a test first asks.
Assembles.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from magnetar.testing.threaded import ThreadedPulsar


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "pulsar(settings=None, clock='real'): how the fixture `pulsar` is made")


@pytest.fixture
def pulsar(request: pytest.FixtureRequest) -> "Iterator[ThreadedPulsar]":
    """A real broker for this test alone, in a thread of its own, with its storage in memory."""
    from magnetar.testing.threaded import ThreadedPulsar

    wanted = request.node.get_closest_marker("pulsar")
    with ThreadedPulsar(**(wanted.kwargs if wanted is not None else {})) as running:
        yield running


@pytest.fixture
def pulsar_url(pulsar: "ThreadedPulsar") -> str:
    return pulsar.service_url
