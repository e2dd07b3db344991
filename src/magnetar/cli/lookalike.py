# SPDX-License-Identifier: Apache-2.0
"""What the look-alikes `pulsar-admin`, `pulsar-client` and `pulsar-perf` run, and how they are installed.

A look-alike is a small script that starts this module; only files that are look-alikes are ever replaced.
Carries.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar.cli import exits
from magnetar.cli.exits import Failure
from magnetar.cli.values import WrongUse
from magnetar.cli.words import Command, Kind, flag

NAMES: Final = ("pulsar-admin", "pulsar-client", "pulsar-perf")
_MARK: Final = "# A look-alike made by `magnetar aliases install`."

INSTALL: Final = Command(
    "install",
    "Install pulsar-admin, pulsar-client and pulsar-perf that run Magnetar's commands.",
    (),
    (
        flag("--dir", Kind.TEXT, "Where to [next to this Python]."),
        flag("--force", Kind.SWITCH, "Replace what is there, whatever it is."),
    ),
)
REMOVE: Final = Command("remove", "Remove them again.", (), (flag("--dir", Kind.TEXT, "From where."),))


def run_lookalike(name: str, words: Sequence[str]) -> int:
    if name == "pulsar-admin":
        from magnetar.cli.admin import run_admin

        return run_admin(words, name)
    if name == "pulsar-client":
        from magnetar.cli.client_tool import run_client

        return run_client(words, name)
    if name == "pulsar-perf":
        from magnetar.cli.perf import run_perf

        return run_perf(words, name)
    sys.stderr.write(f"magnetar: {name} is no look-alike; there are {', '.join(NAMES)}\n")
    return exits.WRONG_USE


def run_aliases(words: Sequence[str], program: str = "magnetar aliases") -> int:
    def whole() -> int:
        commands = {each.name: each for each in (INSTALL, REMOVE)}
        if not words or words[0] in ("--help", "-h"):
            lines = [f"Usage: {program} COMMAND …", ""]
            lines += [f"  {each.name:8}  {each.help}" for each in commands.values()]
            sys.stdout.write("\n".join(lines) + "\n")
            return exits.OK
        command = commands.get(words[0])
        if command is None:
            raise WrongUse(f"{words[0]!r} is no command; there are {', '.join(commands)}")
        if {"--help", "-h"} & set(words[1:]):
            sys.stdout.write(command.help_text(f"{program} {command.name}"))
            return exits.OK
        given = command.read(words[1:])
        directory = Path(given["dir"]) if given["dir"] else Path(sys.executable).parent
        return _install(directory, given["force"]) if command is INSTALL else _remove(directory)

    return exits.ended(whole)


def _install(directory: Path, force: bool) -> int:
    for name in NAMES:
        file = directory / name
        if file.exists() and not force and not _is_ours(file):
            raise Failure(f"{file} is there already and is not ours; --force replaces it, --dir goes elsewhere")
    for name in NAMES:
        file = directory / name
        script = f'#!/bin/sh\n{_MARK}\nexec "{sys.executable}" -m magnetar.cli.lookalike {name} "$@"\n'
        try:
            directory.mkdir(parents=True, exist_ok=True)
            file.write_text(script, encoding="utf-8")
            file.chmod(0o755)
        except OSError as error:
            raise Failure(f"{file} cannot be written: {error.strerror}") from None
        sys.stdout.write(f"{file}\n")
    return exits.OK


def _remove(directory: Path) -> int:
    for name in NAMES:
        file = directory / name
        if file.exists() and _is_ours(file):
            file.unlink()
            sys.stdout.write(f"{file}\n")
    return exits.OK


def _is_ours(file: Path) -> bool:
    try:
        return _MARK in file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


if __name__ == "__main__":
    sys.exit(run_lookalike(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]))
