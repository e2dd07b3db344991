# SPDX-License-Identifier: Apache-2.0
"""A role whose journal's writer dies of a bug once a file is there.

    python -m tests.faults.dying_writer FILE bookie …

It dies of what nobody expects, no error of a disk, where the journal grows. Carries.
"""

import os
import sys

from magnetar.cli.entry import main
from magnetar.runtime.log_file import LogFile


def _kill_writers_once_there_is(path: str) -> None:
    allocate = LogFile._allocate

    def dying(self: LogFile, end: int) -> None:
        if os.path.exists(path):
            raise RuntimeError("a bug of the writer")
        allocate(self, end)

    LogFile._allocate = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    _kill_writers_once_there_is(sys.argv.pop(1))
    main()
