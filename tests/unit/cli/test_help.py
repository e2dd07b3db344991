# SPDX-License-Identifier: Apache-2.0
"""The help is complete: every command and flag has a sentence, and docs/cli.md shows them all as they are."""

import pytest

from magnetar.cli import client_commands, context_command, perf_commands
from magnetar.cli.admin import run_admin
from magnetar.cli.client_tool import run_client
from magnetar.cli.completion import completions
from magnetar.cli.perf import run_perf
from magnetar.cli.verbs.table import nouns, verbs_of_noun
from magnetar.cli.words import Command
from tools import cli_page


def all_commands() -> list[Command]:
    tables = (client_commands.COMMANDS, perf_commands.COMMANDS, context_command.COMMANDS)
    found = [command for table in tables for command in table.values()]
    return found + [verb.command for noun in nouns() for verb in verbs_of_noun(noun).values()]


def test_the_page_shows_the_help_as_it_is() -> None:
    assert cli_page.PAGE.read_text(encoding="utf-8") == cli_page.page(), "run python -m tools.cli_page"


def test_everything_has_a_sentence() -> None:
    for command in all_commands():
        assert command.help.endswith("."), command.name
        for flag in command.flags:
            assert flag.help, (command.name, flag.names)


def test_no_name_means_two_flags() -> None:
    for command in all_commands():
        names = [name for flag in command.flags for name in flag.names]
        assert len(names) == len(set(names)), command.name
        keys = [flag.key for flag in command.flags]
        assert len(keys) == len(set(keys)), command.name


def test_help_is_asked_for_in_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_admin([]) == run_admin(["--help"]) == run_admin(["topics"]) == 0
    assert run_admin(["topics", "stats", "--help"]) == 0
    assert "Usage: magnetar admin topics stats TOPIC [FLAGS]" in capsys.readouterr().out
    assert run_client(["consume", "-h"]) == run_perf(["produce", "--help"]) == 0
    assert "--subscription-name, -s TEXT" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ad"], ["admin"]),
        (["admin", "ten"], ["tenants"]),
        (["admin", "topics", "peek"], ["peek-messages"]),
        (["admin", "topics", "stats", "t", "--get-p"], ["--get-precise-backlog"]),
        (["client", "pro"], ["produce"]),
        (["perf", "produce", "--warm"], ["--warmup-time"]),
        (["admin", "nothing", ""], []),
        (["apply", "--dry"], ["--dry-run"]),
    ],
)
def test_what_is_typed_is_completed(words: list[str], found: list[str]) -> None:
    assert completions(words, ["admin", "apply", "client", "perf"]) == found
