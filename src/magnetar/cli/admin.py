# SPDX-License-Identifier: Apache-2.0
"""`magnetar admin NOUN VERB`: pulsar-admin's nouns, verbs and flags, each one or more requests to a broker.

Flags that say where the cluster is may stand before the noun or after the verb. Exit codes are in exits.py.
Carries.
"""

import difflib
import sys
from collections.abc import Sequence
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.access import ADMIN_FLAGS, access_of
from magnetar.cli.http import TIMEOUT_S, HttpApi
from magnetar.cli.output import show
from magnetar.cli.values import WrongUse
from magnetar.cli.verbs.table import nouns, verbs_of_noun
from magnetar.cli.verbs.verb import Api, Verb
from magnetar.cli.words import Command, Kind, flag

_WORDS_OF_HELP: Final = ("--help", "-h")
COMMON_FLAGS: Final = (
    flag("--json", Kind.SWITCH, "Print one JSON value, whatever it is."),
    flag("--request-timeout", Kind.NUMBER, "Seconds to wait for an answer.", default=TIMEOUT_S),
    *ADMIN_FLAGS,
)
# Verbs of ours that are typed without their noun as well.
_WITHOUT_NOUN: Final = {"balance": "brokers"}
_TAKES_VALUE: Final = {name: each for each in COMMON_FLAGS for name in each.names}


def run_admin(words: Sequence[str], program: str = "magnetar admin") -> int:
    """Ask, print the answer, return the exit code."""
    return exits.ended(lambda: _run(list(words), program))


def _run(words: list[str], program: str) -> int:
    before, noun, rest = _at_first_word(words)
    if noun is None or noun == "help":
        _print_nouns(program)
        return exits.OK if before or not words or set(words) & {*_WORDS_OF_HELP, "help"} else exits.WRONG_USE
    if noun in _WITHOUT_NOUN:
        noun, rest = _WITHOUT_NOUN[noun], [noun, *rest]
    verbs = verbs_of_noun(noun)
    before_verb, verb_name, rest = _at_first_word(rest)
    if verb_name is None:
        _print_verbs(program, noun, verbs)
        return exits.OK
    if verb_name not in verbs:
        near = difflib.get_close_matches(verb_name, list(verbs), 3, 0.6)
        meant = f"; did you mean {' or '.join(near)}?" if near else f"; {program} {noun} lists them"
        raise WrongUse(f"{noun} has no verb {verb_name!r}{meant}")
    verb = verbs[verb_name]
    if set(rest) & {*_WORDS_OF_HELP} - _names(verb.command):
        sys.stdout.write(verb.command.help_text(f"{program} {noun} {verb_name}", more=COMMON_FLAGS))
        return exits.OK
    given = verb.command.read(rest, more=COMMON_FLAGS)
    return _carry_out(verb, given, {**_common(before + before_verb), **_typed_after(verb.command, given)})


def _carry_out(verb: Verb, given: dict[str, Any], common: dict[str, Any]) -> int:
    api = HttpApi(access_of(common), common["request_timeout"])
    try:
        show(answer_of(verb, api, given), as_json=common["json"])
    finally:
        api.close()
    return exits.OK


def answer_of(verb: Verb, api: Api, given: dict[str, Any]) -> Any:
    """What the verb finds: its script's answer, or its one request's."""
    if verb.script is not None:
        return verb.script(api, given)
    answer = api.ask(verb.request(given))
    if isinstance(answer.value, bytes):
        from magnetar.cli.verbs.topic_scripts import shown_message

        return shown_message(answer)
    return answer.value


def _at_first_word(words: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Flags before the first word that is none, that word, and what follows."""
    place = 0
    while place < len(words):
        word = words[place]
        if word in _WORDS_OF_HELP or not word.startswith("-"):
            break
        each = _TAKES_VALUE.get(word.partition("=")[0])
        if each is None:
            raise WrongUse(f"there is no flag {word} here; flags of a verb follow it")
        place += 1 if each.kind.is_switch or "=" in word else 2
    before, rest = words[:place], words[place:]
    if not rest or rest[0] in _WORDS_OF_HELP:
        return before, None, rest
    return before, rest[0], rest[1:]


def _common(words: list[str]) -> dict[str, Any]:
    """What was typed before the verb; what follows the verb comes after it."""
    return Command("admin", "", (), COMMON_FLAGS).read(words)


def _typed_after(command: Command, given: dict[str, Any]) -> dict[str, Any]:
    """Common flags that were typed after the verb; where the verb has a flag of that name, it is the verb's."""
    own = {each.key for each in command.flags}
    return {
        each.key: given[each.key]
        for each in COMMON_FLAGS
        if each.key not in own and given.get(each.key, each.default) != each.default
    }


def _names(command: Command) -> set[str]:
    return {name for each in command.flags for name in each.names}


def _print_nouns(program: str) -> None:
    rows = nouns()
    width = max(map(len, rows))
    lines = [f"Usage: {program} NOUN VERB …", "", "Nouns, each with verbs of its own:"]
    lines += [f"  {noun:{width}}  {about}" for noun, about in rows.items()]
    lines += ["", f"{program} NOUN lists its verbs, {program} NOUN VERB --help what one takes."]
    sys.stdout.write("\n".join(lines) + "\n")


def _print_verbs(program: str, noun: str, verbs: dict[str, Verb]) -> None:
    width = max(map(len, verbs))
    lines = [f"Usage: {program} {noun} VERB …", ""]
    lines += [f"  {name:{width}}  {each.command.help}" for name, each in verbs.items()]
    sys.stdout.write("\n".join(lines) + "\n")
