# SPDX-License-Identifier: Apache-2.0
"""What a command's exit code means, and one sentence for each way to fail.

Decides.
"""

import sys
from collections.abc import Callable
from typing import Final

from magnetar.cli.values import WrongUse
from magnetar.errors import BadName, BadSetting, MagnetarError

OK: Final = 0
# The cluster refused it: it is in the wrong state, it exists already, it is not allowed by a policy.
REFUSED: Final = 1
# What was typed is no command.
WRONG_USE: Final = 2
# Nobody answered.
UNREACHABLE: Final = 3
# Not allowed: who asks could not prove who they are, or may not do this.
NOT_PERMITTED: Final = 4
# What was named does not exist.
NOT_FOUND: Final = 5
# The broker does not have this feature.
NOT_SERVED: Final = 6
# Ctrl-C.
INTERRUPTED: Final = 130


class Failure(MagnetarError):
    """A command ends with this sentence and this exit code."""

    def __init__(self, text: str, code: int = REFUSED) -> None:
        super().__init__(text)
        self.code = code


def code_of(error: MagnetarError) -> int:
    if isinstance(error, Failure):
        return error.code
    if isinstance(error, WrongUse | BadName | BadSetting):
        return WRONG_USE
    return REFUSED


def ended(run: Callable[[], int]) -> int:
    """Run a command; what goes wrong is one sentence on stderr and an exit code, never a traceback."""
    try:
        return run()
    except MagnetarError as error:
        sys.stderr.write(f"magnetar: {error}\n")
        return code_of(error)
    except BrokenPipeError:
        # Whoever read our output has enough; the interpreter must not try to flush it again.
        sys.stdout = None
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
