# SPDX-License-Identifier: Apache-2.0
"""Whether this process is the child of a fork, at the price of reading an attribute: asking the kernel each time is
dear.

Carries.
"""

import os


class Forks:
    """`count` rises in each child; whoever remembers another number was made in a parent."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def on_fork(self) -> None:
        self.count += 1


FORKS = Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FORKS.on_fork)
