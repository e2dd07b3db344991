# SPDX-License-Identifier: Apache-2.0
"""`magnetar apply -f FILE`: make a cluster as a file wants it.

Shows the difference first. On a terminal it asks before it changes anything; what the file does not name stays unless
--prune is given, and without a terminal that needs --yes. Done twice, the second time does nothing.
Carries.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.desired import desired_of
from magnetar.cli.difference import Change, Difference
from magnetar.cli.exits import Failure
from magnetar.cli.http import HttpApi
from magnetar.cli.output import show
from magnetar.cli.own_command import run_own, with_api
from magnetar.cli.values import WrongUse
from magnetar.cli.words import Command, Kind, flag

FILE_BYTES_MAX: Final = 16 << 20

COMMAND: Final = Command(
    "apply",
    "Make tenants, namespaces, policies, topics and permissions as a YAML file says.",
    (),
    (
        flag("--file -f", Kind.TEXT, "The file; - reads standard input.", required=True),
        flag("--dry-run", Kind.SWITCH, "Show the difference only."),
        flag("--prune", Kind.SWITCH, "Remove what tenants and namespaces of the file have and the file does not name."),
        flag("--yes -y", Kind.SWITCH, "Do not ask."),
    ),
)


def run_apply(words: Sequence[str]) -> int:
    return run_own(COMMAND, words, lambda given: with_api(given, lambda api: _apply(api, given)))


def _apply(api: HttpApi, given: dict[str, Any]) -> int:
    changes = list(Difference(api, desired_of(_loaded(given["file"])), prune=given["prune"]).changes())
    if not given["json"]:
        _show(changes)
    if changes and not given["dry_run"]:
        _check_agreed(api, given, changes)
        _make(api, changes, quiet=given["json"])
    if given["json"]:
        rows = [{"sign": each.sign, "what": each.what, "before": each.before, "after": each.after} for each in changes]
        show({"applied": not given["dry_run"], "changes": rows}, as_json=True)
    return exits.OK


def _loaded(name: str) -> Any:
    import yaml

    try:
        if name == "-":
            text = sys.stdin.read(FILE_BYTES_MAX)
        else:
            if Path(name).stat().st_size > FILE_BYTES_MAX:
                raise WrongUse(f"{name} is larger than {FILE_BYTES_MAX} bytes")
            text = Path(name).read_text(encoding="utf-8")
        return yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{name} cannot be read: {error}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise WrongUse(f"{name} is no YAML: {' '.join(str(error).split())}") from None


def _show(changes: list[Change]) -> None:
    if not changes:
        sys.stdout.write("Nothing differs.\n")
    for change in changes:
        sys.stdout.write(change.text() + "\n")


def _check_agreed(api: HttpApi, given: dict[str, Any], changes: list[Change]) -> None:
    if given["yes"]:
        return
    removed = sum(change.sign == "-" for change in changes)
    if sys.stdin.isatty():
        if not api.confirm(f"Make these {len(changes)} changes, {removed} of them removals?"):
            raise Failure("Nothing was changed")
    elif removed:
        raise WrongUse(f"{removed} things would be removed: give --yes, for nobody is there to be asked")


def _make(api: HttpApi, changes: list[Change], *, quiet: bool) -> None:
    """One after another, with a bar where there are many and somebody watches."""
    for place, change in enumerate(_with_bar(changes, quiet)):
        try:
            api.ask(change.request)
        except Failure as error:
            raise Failure(f"{change.what}: {error} ({place} of {len(changes)} changes were made)", error.code) from None
    if not quiet:
        sys.stdout.write(f"{len(changes)} changes were made.\n")


def _with_bar(changes: list[Change], quiet: bool) -> Any:
    if quiet or len(changes) < 10 or not sys.stdout.isatty():
        return changes
    from rich.progress import track

    return track(changes, description="apply")
