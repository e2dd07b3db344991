# SPDX-License-Identifier: Apache-2.0
"""`magnetar contexts`: name the clusters one works with, and switch between them.

Carries.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.access import CONTEXT_FLAGS, read_client_conf, settings_of
from magnetar.cli.contexts import load_contexts
from magnetar.cli.output import show
from magnetar.cli.own_command import JSON
from magnetar.cli.values import WrongUse
from magnetar.cli.words import Command, Kind, flag

_CONFIG: Final = flag("--config", Kind.TEXT, "Take what is not given from this client.conf of Pulsar's.")
COMMANDS: Final = {
    each.name: each
    for each in (
        Command("list", "List the contexts; the current one has a star.", (), (JSON,)),
        Command("show", "Show a context, without its secrets.", ("name?",), (JSON,)),
        Command("set", "Make or change a context.", ("name",), (*CONTEXT_FLAGS, _CONFIG)),
        Command("use", "Make a context the current one.", ("name",)),
        Command("delete", "Forget a context.", ("name",)),
    )
}
_SECRET: Final = "authParams"


def run_contexts(words: Sequence[str], program: str = "magnetar contexts") -> int:
    def whole() -> int:
        if not words or words[0] in ("--help", "-h"):
            lines = [f"Usage: {program} COMMAND …", ""]
            lines += [f"  {each.name:8}  {each.help}" for each in COMMANDS.values()]
            sys.stdout.write("\n".join(lines) + "\n")
            return exits.OK
        command = COMMANDS.get(words[0])
        if command is None:
            raise WrongUse(f"{words[0]!r} is no command; there are {', '.join(COMMANDS)}")
        if {"--help", "-h"} & set(words[1:]):
            sys.stdout.write(command.help_text(f"{program} {command.name}"))
            return exits.OK
        return _run(command.name, command.read(words[1:]))

    return exits.ended(whole)


def _run(name: str, given: dict[str, Any]) -> int:
    contexts = load_contexts(os.environ)
    if name == "list":
        if given["json"]:
            show({"current": contexts.current, "contexts": sorted(contexts.by_name)}, as_json=True)
        for each in sorted(contexts.by_name) if not given["json"] else ():
            sys.stdout.write(f"{'*' if each == contexts.current else ' '} {each}\n")
        return exits.OK
    if name == "show":
        shown = given["name"] or contexts.current
        if shown is None:
            raise WrongUse("no context is the current one; name one")
        settings = {key: "…" if key == _SECRET else value for key, value in contexts.named(shown).items()}
        show({"name": shown, **settings}, as_json=given["json"])
        return exits.OK
    if name == "set":
        settings = read_client_conf(given["config"]) if given["config"] else {}
        contexts.by_name[given["name"]] = {
            **contexts.by_name.get(given["name"], {}),
            **settings,
            **settings_of(given),
        }
        contexts.current = contexts.current or given["name"]
    elif name == "use":
        contexts.named(given["name"])
        contexts.current = given["name"]
    else:
        contexts.named(given["name"])
        del contexts.by_name[given["name"]]
        if contexts.current == given["name"]:
            contexts.current = None
    contexts.save()
    return exits.OK
