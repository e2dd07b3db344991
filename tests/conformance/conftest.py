# SPDX-License-Identifier: Apache-2.0
"""What most conformance tests share: a standalone for the module, an official client, a topic of the test's own.

A module whose server needs settings brings its own `standalone`.
"""

from collections.abc import Iterator

import pulsar
import pytest

from tests.conformance.exchanges import QUIET
from tests.processes import StandaloneProcess


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("standalone")) as process:
        yield process


@pytest.fixture
def client(standalone: StandaloneProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    yield client
    client.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"persistent://public/default/{request.node.name.replace('[', '-').replace(']', '')}"
