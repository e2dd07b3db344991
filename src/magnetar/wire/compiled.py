# SPDX-License-Identifier: Apache-2.0
"""The compiled twins of our hottest loops (`native/`), where somebody has built them with `make compile`.

Everything works without them, to the same bytes; tests hold the two equal. `MAGNETAR_PURE=1` leaves them aside, and so
does a build of another edition: one from before the code around them changed.
Carries.
"""

import logging
import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

MODULE: Final = "magnetar.wire._runs"
# Goes up with every change of what the compiled loops are given or give; `EDITION` in native/_runs.pyx and _rows.pyx
# is the same.
EDITION: Final = 9

_log = logging.getLogger(__name__)


def is_built(module: str = MODULE) -> bool:
    return find_spec(module) is not None


def load(module: str = MODULE) -> ModuleType | None:
    """The compiled loops, or None where the plain ones are to be used."""
    if not is_built(module) or os.environ.get("MAGNETAR_PURE"):
        return None
    twins = import_module(module)
    if getattr(twins, "EDITION", None) != EDITION:
        _notice(module)
        return None
    return twins


@cache
def _notice(module: str) -> None:
    """Once, however many ask."""
    _log.warning("%s is of another edition and not used: `make compile` builds it anew", module)
