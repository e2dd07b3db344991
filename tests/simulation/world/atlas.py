# SPDX-License-Identifier: Apache-2.0
"""The fault atlas: which acknowledged things have a good copy where, so that damage stays within what we promise.

The scenario says where copies lie; the nemesis asks before it destroys some. A cluster promises to survive the loss of
all copies but one, not of all. A scenario that wants more loss than that says so (`excused`), and then its checker must
ask for honest errors instead of the data.
"""

from collections.abc import Hashable


class Atlas:
    def __init__(self) -> None:
        # Dicts of None are sets with an order.
        self._good: dict[Hashable, dict[str, None]] = {}
        self._by_node: dict[str, dict[Hashable, None]] = {}
        self.excused: dict[Hashable, None] = {}

    def stored(self, thing: Hashable, node: str) -> None:
        """An acknowledged thing has a good, durable copy on this node (first copy, or repaired)."""
        self._good.setdefault(thing, {})[node] = None
        self._by_node.setdefault(node, {})[thing] = None

    def deleted(self, thing: Hashable) -> None:
        """It is not needed any more."""
        for node in self._good.pop(thing, {}):
            del self._by_node[node][thing]

    def copies(self, thing: Hashable) -> list[str]:
        return list(self._good.get(thing, ()))

    def may_damage(self, node: str, thing: Hashable) -> bool:
        return any(other != node for other in self._good.get(thing, ()))

    def may_wipe(self, node: str) -> bool:
        """Has everything on this node another good copy?"""
        return all(self.may_damage(node, thing) for thing in self._by_node.get(node, ()))

    def damaged(self, node: str, thing: Hashable) -> None:
        copies = self._good.get(thing, {})
        copies.pop(node, None)
        self._by_node.get(node, {}).pop(thing, None)
        if not copies:
            self.excused[thing] = None

    def wiped(self, node: str) -> None:
        for thing in list(self._by_node.get(node, ())):
            self.damaged(node, thing)
