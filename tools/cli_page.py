# SPDX-License-Identifier: Apache-2.0
"""Writes docs/cli.md from the commands: every command with its flags, as `--help` shows them.

`python -m tools.cli_page` writes the page; with `--check` it only says whether the page is in step. A test holds the
page equal to the commands, so that no flag changes unnoticed.
Assembles.
"""

import sys
from pathlib import Path

from magnetar.cli import admin, client_commands, context_command, perf_commands, role_commands
from magnetar.cli.apply import COMMAND as APPLY
from magnetar.cli.doctor import COMMAND as DOCTOR
from magnetar.cli.explain import COMMAND as EXPLAIN
from magnetar.cli.lookalike import INSTALL, REMOVE
from magnetar.cli.pipeline import verbs_of_pipeline
from magnetar.cli.spark_access import SPARK_FLAGS
from magnetar.cli.sql import COMMAND as SQL
from magnetar.cli.top import COMMAND as TOP
from magnetar.cli.verbs.table import nouns, verbs_of_noun
from magnetar.cli.words import Command, Flag

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"


def page() -> str:
    lines = [
        "# The command line",
        "",
        "Written by `python -m tools.cli_page` from the commands; do not edit. How to use them is in",
        "[guides/command-line.md](guides/command-line.md); `magnetar --help` lists a few more.",
        "",
    ]
    for command in role_commands.COMMANDS.values():
        lines += _section(f"magnetar {command.name}", command)
    lines += _common("Flags of `magnetar admin` and of Magnetar's own commands", admin.COMMON_FLAGS)
    for command in (EXPLAIN, TOP, DOCTOR, APPLY, SQL):
        lines += _section(f"magnetar {command.name}", command)
    lines += ["## magnetar pipeline", ""]
    lines += _common("Flags of `magnetar sql` and of `magnetar pipeline` commands that use Spark", SPARK_FLAGS)
    for name, step in verbs_of_pipeline().items():
        lines += _section(f"magnetar pipeline {name}", step.command)
    for name, table in (
        ("client", client_commands.COMMANDS),
        ("perf", perf_commands.COMMANDS),
        ("contexts", context_command.COMMANDS),
        ("aliases", {"install": INSTALL, "remove": REMOVE}),
    ):
        common = {"client": client_commands.COMMON, "perf": perf_commands.COMMON}.get(name)
        lines += [f"## magnetar {name}", ""]
        if common:
            lines += _common(f"Flags of every `magnetar {name}` command", common)
        for command in table.values():
            lines += _section(f"magnetar {name} {command.name}", command)
    for noun, about in nouns().items():
        lines += [f"## magnetar admin {noun}", "", about, ""]
        for verb in verbs_of_noun(noun).values():
            lines += _section(f"magnetar admin {noun} {verb.name}", verb.command)
    return "\n".join(lines)


def _section(path: str, command: Command) -> list[str]:
    return ["```text", command.help_text(path).rstrip("\n"), "```", ""]


def _common(title: str, flags: tuple[Flag, ...]) -> list[str]:
    text = Command("", "", (), flags).help_text("").partition("Flags:\n")[2]
    return [f"### {title}", "", "```text", text.rstrip("\n"), "```", ""]


def main(arguments: list[str]) -> int:
    text = page()
    if "--check" in arguments:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write("docs/cli.md is not in step: run python -m tools.cli_page\n")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
