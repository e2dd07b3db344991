# SPDX-License-Identifier: Apache-2.0
"""A real broker inside a test: `LocalPulsar` on the test's own loop, fixture `pulsar` for blocking clients.

Everything is real but the disk, which is in memory unless a directory is given: wire protocol, storage, cursors,
errors. Loaded when first used, because pytest imports this package in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.testing.local_pulsar import LocalPulsar as LocalPulsar
    from magnetar.testing.threaded import ThreadedPulsar as ThreadedPulsar

_HOMES = {"LocalPulsar": "local_pulsar", "ThreadedPulsar": "threaded"}
__all__ = ["LocalPulsar", "ThreadedPulsar"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"magnetar.testing.{_HOMES[name]}"), name)
