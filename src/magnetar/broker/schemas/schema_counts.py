# SPDX-License-Identifier: Apache-2.0
"""What is asked of the schemas of each namespace: how often, how long it took, and how schemas were judged.

Namespaces beyond a bound are counted together.
Decides.
"""

from collections.abc import Callable
from typing import Final

from magnetar.broker.timed import Timed

NAMESPACES_MAX: Final = 1_000
OTHERS: Final = "other"


class NamespaceCounts:
    __slots__ = ("compatible", "deletes", "gets", "incompatible", "puts")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.gets = Timed(now_s)
        self.puts = Timed(now_s)
        self.deletes = Timed(now_s)
        self.compatible = 0
        self.incompatible = 0


class SchemaCounts:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.by_namespace: dict[str, NamespaceCounts] = {}

    def of(self, namespace: str) -> NamespaceCounts:
        found = self.by_namespace.get(namespace)
        if found is None:
            if len(self.by_namespace) >= NAMESPACES_MAX:
                namespace = OTHERS
            found = self.by_namespace.setdefault(namespace, NamespaceCounts(self._now_s))
        return found
