# SPDX-License-Identifier: Apache-2.0
"""Names for the topics of loads, never used twice, and the few admin calls that loads need."""

import http.client
import itertools
import json
import time
from urllib.parse import urlparse

_numbers = itertools.count()
_RUN = f"{time.time_ns() // 1_000_000:x}"


def fresh(what: str) -> str:
    return f"persistent://public/default/{what}-{_RUN}-{next(_numbers)}"


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def partitioned(web_url: str, count: int) -> list[str]:
    """The partitions of a new topic."""
    topic = fresh("partitioned")
    admin = Admin(web_url)
    admin.call("PUT", f"{path_of(topic)}/partitions", count)
    admin.close()
    return [f"{topic}-partition-{number}" for number in range(count)]


def whole(partition: str) -> str:
    """The topic of which it is a partition."""
    return partition.rpartition("-partition-")[0]


class Admin:
    """One kept-alive connection to a server's admin port."""

    def __init__(self, web_url: str) -> None:
        url = urlparse(web_url)
        assert url.hostname is not None
        self._connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)

    def call(self, method: str, path: str, body: object = None) -> int:
        """The status; anything from 400 on ends the run."""
        headers = {"Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        self._connection.request(method, f"/admin/v2/{path}", text, headers)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status >= 400:
            raise ConnectionError(f"{method} {path} was answered {answer.status}: {said[:300]!r}")
        return answer.status

    def close(self) -> None:
        self._connection.close()
