# SPDX-License-Identifier: Apache-2.0
"""Several clusters on loopback, each a standalone with a name of its own, registered with one another."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.processes import StandaloneProcess

LIMIT_S = 60.0


class Region(StandaloneProcess):
    """One cluster."""

    def __init__(self, name: str, directory: Path, settings: Iterable[str] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        configuration = directory / "broker.conf"
        configuration.write_text("\n".join((f"clusterName={name}", *settings)) + "\n")
        super().__init__(directory, "--config", str(configuration))
        self.name = name

    def ask(self, verb: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.web_url}/admin/v2/{path}", data, method=verb)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def refusal(self, verb: str, path: str, body: object = None) -> int:
        """The status with which a request is refused; 0 when it is not."""
        try:
            self.ask(verb, path, body)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        return 0

    def replication(self, topic: str, remote: str) -> dict[str, Any]:
        """What the statistics of a topic say of another cluster."""
        path = topic.replace("://", "/")
        found: dict[str, Any] = self.ask("GET", f"{path}/stats")["replication"][remote]
        return found

    def drained(self, topic: str, remote: str) -> bool:
        shown = self.replication(topic, remote)
        return bool(shown["connected"]) and shown["replicationBacklog"] == 0


class Regions:
    """Clusters that know each other; `namespace` is replicated among all of them."""

    def __init__(self, directory: Path, *names: str, settings: Iterable[str] = (), namespace: str = "geo/all") -> None:
        self.namespace = namespace
        self.all = [Region(name, directory / name, settings) for name in names]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for region in self.all:
            self._stack.enter_context(region)
        for region in self.all:
            self.register(region)
            self.open_namespace(region, self.namespace, [each.name for each in self.all])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def register(self, region: Region) -> None:
        for other in self.all:
            if other is not region:
                urls = {"serviceUrl": other.web_url, "brokerServiceUrl": other.service_url}
                region.ask("PUT", f"clusters/{other.name}", urls)

    def open_namespace(self, region: Region, namespace: str, clusters: list[str]) -> None:
        tenant = namespace.partition("/")[0]
        if tenant not in region.ask("GET", "tenants"):
            region.ask("PUT", f"tenants/{tenant}", {"allowedClusters": [each.name for each in self.all]})
        region.ask("PUT", f"namespaces/{namespace}", {"replication_clusters": clusters})

    def topic(self, name: str) -> str:
        return f"persistent://{self.namespace}/{name}"


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for a condition of other processes."""
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end, f"after {LIMIT_S} s not yet: {what}"
        time.sleep(0.05)
