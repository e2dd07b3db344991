# SPDX-License-Identifier: Apache-2.0
"""Completion of what is typed in a shell: commands, nouns, verbs and flags.

The script of a shell calls `magnetar complete` with the words so far; it never asks a broker.
Decides.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from magnetar.cli.values import WrongUse
from magnetar.cli.words import Command, Flag

BASH: Final = """_magnetar() {
    local IFS=$'\\n'
    COMPREPLY=($(magnetar complete -- "${COMP_WORDS[@]:1:COMP_CWORD}"))
}
complete -o default -F _magnetar magnetar
"""
ZSH: Final = """#compdef magnetar
_magnetar() {
    local -a found
    found=(${(f)"$(magnetar complete -- "${words[@]:1:$((CURRENT - 1))}")"})
    compadd -a found
}
compdef _magnetar magnetar
"""
FISH: Final = """complete -c magnetar -f -a '(magnetar complete -- (commandline -opc)[2..-1] (commandline -ct))'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completions(words: Sequence[str], commands: Iterable[str]) -> list[str]:
    """What the last of the words may become."""
    last = words[-1] if words else ""
    return sorted(each for each in _candidates(list(words[:-1]), last, commands) if each.startswith(last))


def _candidates(before: list[str], last: str, commands: Iterable[str]) -> list[str]:
    if not before:
        return list(commands)
    plain = [word for word in before if not word.startswith("-")]
    if before[0] == "admin":
        return _of_admin(plain[1:], last)
    table = _table_of(before[0])
    if table is not None:
        if len(plain) == 1:
            return [*table]
        found = table.get(plain[1])
        return _flags(found.flags) if found is not None and last.startswith("-") else []
    own = _own(before[0])
    return _flags(own.flags) if own is not None and last.startswith("-") else []


def _of_admin(words: list[str], last: str) -> list[str]:
    from magnetar.cli.admin import COMMON_FLAGS
    from magnetar.cli.verbs.table import nouns, verbs_of_noun

    if not words:
        return [*nouns(), *(_flags(COMMON_FLAGS) if last.startswith("-") else ())]
    try:
        verbs = verbs_of_noun(words[0])
    except WrongUse:
        return []
    if len(words) == 1:
        return [*verbs]
    verb = verbs.get(words[1])
    if verb is None or not last.startswith("-"):
        return []
    return _flags((*verb.command.flags, *COMMON_FLAGS))


def _table_of(name: str) -> dict[str, Command] | None:
    if name == "client":
        from magnetar.cli import client_commands

        return client_commands.COMMANDS
    if name == "perf":
        from magnetar.cli import perf_commands

        return perf_commands.COMMANDS
    if name == "contexts":
        from magnetar.cli import context_command

        return context_command.COMMANDS
    return None


def _own(name: str) -> Command | None:
    if name == "explain":
        from magnetar.cli.explain import COMMAND as explain

        return explain
    if name == "top":
        from magnetar.cli.top import COMMAND as top

        return top
    if name == "doctor":
        from magnetar.cli.doctor import COMMAND as doctor

        return doctor
    if name == "apply":
        from magnetar.cli.apply import COMMAND as apply

        return apply
    return None


def _flags(flags: Iterable[Flag]) -> list[str]:
    return [name for each in flags for name in each.names if name.startswith("--")]
