# SPDX-License-Identifier: Apache-2.0
"""The compiled twins of our run loops (`native/_runs.pyx`), where somebody has built them with `make compile`.

Everything works without them, to the same bytes; tests hold the two equal. `MAGNETAR_PURE=1` leaves them aside.
Carries.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

MODULE: Final = "magnetar.wire._runs"


def is_built() -> bool:
    return find_spec(MODULE) is not None


def load() -> ModuleType | None:
    """The compiled loops, or None where the plain ones are to be used."""
    return import_module(MODULE) if is_built() and not os.environ.get("MAGNETAR_PURE") else None
