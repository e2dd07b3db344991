# SPDX-License-Identifier: Apache-2.0
"""A verb of `magnetar admin`: what it takes and which request it is.

A row of a table, not code: the path with names in braces, flags that become the query, flags that become the body. A
verb that is more than one request has a script, which is handed a place to send them to. Never sends.
Decides.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from magnetar.cli.values import WrongUse
from magnetar.cli.words import Command, Flag, Given, Kind, flag
from magnetar.names import NamespaceName, TopicName, encode_name

TOPIC: Final = "/admin/v2/{topic}"
NAMESPACE: Final = "/admin/v2/namespaces/{namespace}"
SUBSCRIPTION: Final = TOPIC + "/subscription/{subscription}"


class AdminRequest(NamedTuple):
    method: str
    # With the query.
    path: str
    body: bytes | None = None
    media_type: str = "application/json"


class AdminAnswer(NamedTuple):
    """What came back: a JSON value where it was one, the text where not, and headers by their lower-case names."""

    value: Any
    headers: Mapping[str, str] = {}


class Api(Protocol):
    """Where a script sends its requests. A refusal is raised, not returned."""

    def ask(self, request: AdminRequest) -> AdminAnswer: ...
    def confirm(self, question: str) -> bool:
        """Whether the person at the terminal agrees; without a terminal nobody does."""
        ...

    def now_ms(self) -> int: ...
    def pause(self, seconds: float) -> None: ...


class Raw(NamedTuple):
    """A body that is not `application/json`."""

    media_type: str
    content: bytes


class Verb(NamedTuple):
    command: Command
    method: str = "GET"
    path: str = ""
    # Parameters of the query: their names, and the key that each is taken from.
    query: tuple[tuple[str, str], ...] = ()
    body: Callable[[Given], Any] | None = None
    script: Callable[[Api, Given], Any] | None = None

    @property
    def name(self) -> str:
        return self.command.name

    def request(self, given: Given) -> AdminRequest:
        return request(self.method, self.path, given, query=self.query, body=self.body)


def request(
    method: str,
    path: str,
    given: Given,
    *,
    query: tuple[tuple[str, str], ...] = (),
    body: Callable[[Given], Any] | None = None,
) -> AdminRequest:
    """The request that a row stands for, with what was given. WrongUse or BadName when a name is none."""
    for name in _parameters(path):
        path = path.replace(f"{{{name}}}", _written(name, str(given[_key(name)])), 1)
    pairs = [(parameter, _in_query(given[key])) for parameter, key in query if given.get(key) is not None]
    if pairs:
        path += "?" + urlencode(pairs)
    if body is None:
        return AdminRequest(method, path)
    content = body(given)
    if isinstance(content, Raw):
        return AdminRequest(method, path, content.content, content.media_type)
    return AdminRequest(method, path, None if content is None else json.dumps(content).encode())


def verb(
    name: str,
    help: str,
    method: str,
    path: str,
    *flags: Flag,
    query: str = "",
    body: Callable[[Given], Any] | None = None,
    arguments: tuple[str, ...] | None = None,
) -> Verb:
    """One request. Arguments are the names in the path that no flag gives; `query` is `parameter=key` by spaces."""
    keys = {each.key for each in flags}
    loose = (
        arguments
        if arguments is not None
        else tuple(_key(each) for each in _parameters(path) if _key(each) not in keys)
    )
    pairs = tuple((part.partition("=")[0], part.partition("=")[2]) for part in query.split())
    return Verb(Command(name, help, loose, flags), method, path, pairs, body)


def scripted(
    name: str, help: str, arguments: tuple[str, ...], script: Callable[[Api, Given], Any], *flags: Flag
) -> Verb:
    """Several requests, or one that depends on what was typed."""
    return Verb(Command(name, help, arguments, flags), script=script)


# --- bodies --------------------------------------------------------------------------------------


def value(key: str) -> Callable[[Given], Any]:
    return lambda given: given[key]


def constant(content: Any) -> Callable[[Given], Any]:
    return lambda given: content


def members(**keys: str) -> Callable[[Given], Any]:
    """An object: its members, and the key that each is taken from; what was not given is left out."""
    return lambda given: {member: given[key] for member, key in keys.items() if given[key] is not None}


def either(on: str = "enable", off: str = "disable") -> Callable[[Given], bool]:
    """One of two switches must be typed, and only one."""

    def chosen(given: Given) -> bool:
        if given[on] == given[off]:
            raise WrongUse(f"give either --{on.replace('_', '-')} or --{off.replace('_', '-')}")
        return bool(given[on])

    return chosen


# --- flags that many verbs have ------------------------------------------------------------------

ENABLE: Final = flag("--enable -e", Kind.SWITCH, "Switch it on.")
DISABLE: Final = flag("--disable -d", Kind.SWITCH, "Switch it off.")
APPLIED: Final = flag("--applied -ap", Kind.SWITCH, "What is in force, with what is inherited.")
FORCE: Final = flag("--force -f", Kind.SWITCH, "Also when clients are connected or it is not empty.")
SUBSCRIPTION_FLAG: Final = flag("--subscription -s", Kind.TEXT, "The subscription.", required=True)
BUNDLE: Final = flag("--bundle -b", Kind.TEXT, "Only this bundle, as 0x00000000_0x40000000.")
SYSTEM_TOPICS: Final = flag("--include-system-topic -ist", Kind.SWITCH, "System topics too.")


def _parameters(path: str) -> list[str]:
    return [part.partition("}")[0] for part in path.split("{")[1:]]


def _key(parameter: str) -> str:
    """A topic is the same argument, whether its path has its domain or not."""
    return "topic" if parameter == "bare_topic" else parameter


def _written(name: str, text: str) -> str:
    """A name as it is written in a path."""
    if name == "topic":
        return TopicName.parse(text).lookup_name
    if name == "bare_topic":
        return TopicName.parse(text).lookup_name.partition("/")[2]
    if name == "namespace":
        return str(NamespaceName.parse(text))
    if name in ("subscription", "sub", "tenant", "cluster", "role", "group"):
        return encode_name(text)
    return quote(text, safe="")


def _in_query(content: Any) -> str:
    if isinstance(content, bool):
        return "true" if content else "false"
    return ",".join(content) if isinstance(content, list) else str(content)
