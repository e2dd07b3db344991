# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests of the client run against: a standalone of ours, or the service that the environment names.

`MAGNETAR_TEST_SERVICE_URL` and `MAGNETAR_TEST_WEB_URL` point the same tests at Apache Pulsar, which then needs
`acknowledgmentAtBatchIndexLevelEnabled=true` and `transactionCoordinatorEnabled=true`. `MAGNETAR_TEST_LOOP=uvloop` runs
them on uvloop.
"""

import asyncio
import json
import os
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
import uvloop

from tests.conftest import run_without_leaks
from tests.processes import StandaloneProcess

Result = TypeVar("Result")

_numbers = count()


class Service(NamedTuple):
    url: str
    web_url: str

    def topic(self, name: str) -> str:
        """A topic that no other test uses."""
        return f"persistent://public/default/{name}-{os.getpid()}-{next(_numbers)}"

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """One call of the admin interface; its JSON, if it gave any."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.web_url}/admin/v2/{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def create_partitions(self, topic: str, partitions: int) -> None:
        self.admin("PUT", f"{topic.replace('://', '/')}/partitions", partitions)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    url = os.environ.get("MAGNETAR_TEST_SERVICE_URL")
    if url is not None:
        yield Service(url, os.environ.get("MAGNETAR_TEST_WEB_URL", "http://127.0.0.1:8080"))
        return
    directory: Path = tmp_path_factory.mktemp("standalone")
    with StandaloneProcess(directory, environment={"transactionCoordinatorEnabled": "true"}) as standalone:
        yield Service(standalone.service_url, standalone.web_url)


def run(test: Coroutine[Any, Any, Result]) -> Result:
    """On a fresh loop; a task or thread that is left fails the test."""
    is_uvloop = os.environ.get("MAGNETAR_TEST_LOOP") == "uvloop"
    return run_without_leaks(test, uvloop.new_event_loop if is_uvloop else asyncio.new_event_loop)


async def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Let the loop run until the condition is true."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 the condition is another process's
            await asyncio.sleep(0.005)
