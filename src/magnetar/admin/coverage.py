# SPDX-License-Identifier: Apache-2.0
"""Which of Pulsar's paths are served: asked of the routes themselves, policy by policy.

Decides.
"""

import re
from collections.abc import Sequence
from typing import Final

from starlette.routing import BaseRoute, Match, Route

from magnetar.admin.known_paths import known_paths
from magnetar.admin.policy_table import NAMESPACE_POLICIES, TOPIC_POLICIES, PolicyRow

_SAMPLES: Final = {
    "domain": "persistent",
    "bundle": "0x00000000_0xffffffff",
    "timestamp": "1",
    "partition": "0",
    "ledgerId": "1",
    "entryId": "1",
    "numMessages": "1",
    "messagePosition": "1",
    "expireTimeInSeconds": "1",
}


def sample_of(path: str) -> str:
    """The path with something in place of its parameters that names nothing that exists."""
    return re.sub(r"\{([^}]*)\}", lambda found: _SAMPLES.get(found[1], f"no-{found[1]}"), path)


def is_served(routes: Sequence[BaseRoute], method: str, path: str) -> bool:
    sample = sample_of(path)
    route = _match(routes, method, sample)
    if route is None:
        return False
    if not route.path.endswith("/{policy}"):
        return True
    table = NAMESPACE_POLICIES if route.path.startswith("/admin/v2/namespaces") else TOPIC_POLICIES
    row = table.get(sample.rpartition("/")[2])
    return row is not None and _takes(row, method)


def served_paths(routes: Sequence[BaseRoute]) -> list[tuple[str, str, bool]]:
    return [(method, path, is_served(routes, method, path)) for method, path in known_paths()]


def _takes(row: PolicyRow, method: str) -> bool:
    return method == "GET" or method == row.verb or (method == "DELETE" and row.is_removable)


def _match(routes: Sequence[BaseRoute], method: str, path: str) -> Route | None:
    scope = {"type": "http", "method": method, "path": path, "headers": [], "root_path": ""}
    for route in routes:
        if isinstance(route, Route) and route.matches(scope)[0] is Match.FULL:
            return route
    return None
