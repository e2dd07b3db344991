# SPDX-License-Identifier: Apache-2.0
"""How the commands that Pulsar does not have are run: read the words or show the help, ask a broker, end with a code.

Carries.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.access import ADMIN_FLAGS, access_of
from magnetar.cli.http import TIMEOUT_S, HttpApi
from magnetar.cli.words import Command, Flag, Kind, flag

JSON: Final = flag("--json", Kind.SWITCH, "Print JSON.")
COMMON: Final[tuple[Flag, ...]] = (
    JSON,
    flag("--request-timeout", Kind.NUMBER, "Seconds to wait for an answer.", default=TIMEOUT_S),
    *ADMIN_FLAGS,
)


def run_own(
    command: Command,
    words: Sequence[str],
    body: Callable[[dict[str, Any]], int],
    *,
    more: tuple[Flag, ...] = COMMON,
    program: str = "magnetar",
) -> int:
    """Run a command's body with what the words give; failures are one sentence and a code."""

    def whole() -> int:
        if {"--help", "-h"} & set(words):
            sys.stdout.write(command.help_text(f"{program} {command.name}", more=more))
            return exits.OK
        return body(command.read(words, more=more))

    return exits.ended(whole)


def with_api(given: dict[str, Any], body: Callable[[HttpApi], int]) -> int:
    api = HttpApi(access_of(given), given["request_timeout"])
    try:
        return body(api)
    finally:
        api.close()
