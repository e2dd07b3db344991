# SPDX-License-Identifier: Apache-2.0
"""A role whose journal's syncs fail, take seconds or never return once a file is there.

    python -m tests.faults.failing_sync FILE bookie …

The file says which: `error` is an input/output error, once, after which syncs would succeed; `slow` takes five seconds
each time; `hang` never returns.
The bytes are written before. Needs MAGNETAR_PURE, as the compiled writer goes by no Python. Carries.
"""

import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from magnetar.cli.entry import main
from magnetar.runtime.log_file import LogFile


def _fail_syncs_once_there_is(orders: Path) -> None:
    append: Callable[..., None] = LogFile.append

    def failing(self: LogFile, buffers: list[Any], length: int) -> None:
        append(self, buffers, length)
        if "journal" not in self._path or not orders.exists():
            return
        order = orders.read_text()
        if order in ("hang", "slow"):
            threading.Event().wait(5.0 if order == "slow" else None)
        if order == "error":
            orders.write_text("no more")
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    LogFile.append = failing  # type: ignore[method-assign]


if __name__ == "__main__":
    _fail_syncs_once_there_is(Path(sys.argv.pop(1)))
    main()
