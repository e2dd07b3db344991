# SPDX-License-Identifier: Apache-2.0
"""Where the installed `magnetar` starts: commands that read their own words run at once, the others through Typer.

Typer alone costs as much as a whole `magnetar admin topics list`, and neither these commands nor servers need it.
Assembles.
"""

import gc
import sys
from importlib import import_module
from typing import Final

# Command: module and function that runs its words.
_DIRECT: Final = {
    "admin": ("admin", "run_admin"),
    "client": ("client_tool", "run_client"),
    "perf": ("perf", "run_perf"),
    "explain": ("explain", "run_explain"),
    "top": ("top", "run_top"),
    "doctor": ("doctor", "run_doctor"),
    "apply": ("apply", "run_apply"),
    "contexts": ("context_command", "run_contexts"),
    "aliases": ("lookalike", "run_aliases"),
    "sql": ("sql", "run_sql"),
    "pipeline": ("pipeline", "run_pipeline"),
}


_ROLES: Final = ("standalone", "broker", "bookie", "autorecovery", "proxy", "websocket")


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in _ROLES:
        gc.disable()  # what is imported stays; the process's collector goes on when it runs
        from magnetar.cli.role_commands import run_role

        sys.exit(run_role(sys.argv[1], sys.argv[2:]))
    place = _DIRECT.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if place is not None:
        module, name = place
        sys.exit(getattr(import_module(f"magnetar.cli.{module}"), name)(sys.argv[2:]))
    from magnetar.cli.main import main as whole

    whole()


if __name__ == "__main__":
    main()
