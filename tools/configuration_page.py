# SPDX-License-Identifier: Apache-2.0
"""Writes docs/configuration.md from the table of settings: key, field, default, allowed, meaning.

With --check it only says whether the page is in step. Where the table has no words for a field, the comment above the
field in its settings class is the meaning.
Carries.
"""

import inspect
import sys
from pathlib import Path
from typing import Any

from magnetar.config.key import Key
from magnetar.config.keys import KEYS, ORDERS, OWNERS, ROLE_DEFAULTS, ROLE_LIMITS
from magnetar.config.known_keys import KNOWN_KEYS
from magnetar.config.values import IntervalOfRate, OneOf, Whole

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"

HEAD = """# Configuration

Written by `python -m tools.configuration_page` from the table in `magnetar.config`; do not edit.

Settings come from four places; the later wins:

1. the defaults below (those of standalone; a role may differ, see the end);
2. files given with `--config`, in order. Pulsar's own `broker.conf`, `standalone.conf` and `bookkeeper.conf` are
   accepted as they are: `key=value`, `#` starts a comment, a backslash continues a line, an empty value is the default;
3. the environment: a key of this page by its plain name, as Pulsar's containers take it (`clusterName=east`); then
   `PULSAR_PREFIX_clusterName`; then `MAGNETAR_CLUSTER_NAME`, in which case and underscores do not matter;
4. flags of the command.

A bad value stops the start and says where it stands and what is allowed. A key that Pulsar knows and Magnetar does not
use yet is accepted and named in the log ({unused} such keys); an unknown key is a warning with the nearest known one.
"""

TITLES = {
    "security": "Security",
    "broker": "Broker",
    "admin": "Administration over HTTP",
    "websocket": "WebSocket",
    "proxy": "Proxy",
    "balance": "Sharing bundles among brokers",
    "managed_ledger": "Managed ledgers",
    "ledger": "Ledger client",
    "placement": "Placement of copies",
    "channel": "Connections to bookies",
    "repair": "Repair of lost copies",
    "bookie": "Bookie",
    "bookie_server": "A bookie's ports",
    "metadata": "Metadata",
    "runtime": "Process",
}


def page() -> str:
    """The whole page."""
    unused = len(KNOWN_KEYS - {key.name for key in KEYS})
    parts = [HEAD.format(unused=unused)]
    for owner, settings in OWNERS.items():
        comments = field_comments(settings)
        lines = [
            f"## {TITLES[owner]}\n",
            f"Class `{settings.__name__}`.\n",
            "| key | field | default | allowed | meaning |",
            "|---|---|---|---|---|",
        ]
        order = list(settings.__dataclass_fields__)  # type: ignore[attr-defined]
        rows = sorted((key for key in KEYS if key.owner == owner), key=lambda key: order.index(key.field))
        lines += [_row(key, settings(), comments) for key in rows]
        parts.append("\n".join(lines) + "\n")
    parts.append(_rules())
    return "\n".join(parts)


def field_comments(settings: type) -> dict[str, str]:
    """Field → the comment lines directly above it."""
    comments: dict[str, str] = {}
    pending: list[str] = []
    for line in inspect.getsource(settings).splitlines():
        text = line.strip()
        if text.startswith("#"):
            pending.append(text.lstrip("# "))
            continue
        name, separator, _ = text.partition(":")
        if separator and pending and name.isidentifier():
            comments[name] = " ".join(pending)
        pending = []
    return comments


def _row(key: Key, defaults: Any, comments: dict[str, str]) -> str:
    name = f"`{key.name}`" + (f", `{key.flag}`" if key.flag else "")
    meaning = key.meaning or comments.get(key.field, "")
    if key.roles:
        meaning += f" Only for {' and '.join(key.roles)}."
    cells = (name, f"`{key.field}`", _default(key, getattr(defaults, key.field)), key.value.allowed, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(key: Key, value: object) -> str:
    """The default as one would write it for this key, in the key's unit."""
    if key.secret:
        return "empty" if not value else "set"
    if isinstance(key.value, Whole) and isinstance(value, int) and value > 0 and value % key.value.factor == 0:
        return str(value // key.value.factor)
    if isinstance(key.value, OneOf):
        return next((word for word, meant in key.value.choices if meant == value), str(value))
    if isinstance(key.value, IntervalOfRate) and isinstance(value, int):
        return f"{1000 / value:g}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value) if value != "" else "empty"


def _rules() -> str:
    lines = ["## Rules between settings\n"]
    lines += [f"- `{o.owner}.{o.field}` is not larger than `{o.larger_owner}.{o.larger_field}`." for o in ORDERS]
    lines += ["", "## Roles\n"]
    for role, defaults in ROLE_DEFAULTS.items():
        lines += [f"- {role}: `{name}` defaults to {value}." for name, value in defaults.items()]
    for role, limits in ROLE_LIMITS.items():
        lines += [f"- {role}: `{owner}.{field}` is at most {most}." for (owner, field), most in limits.items()]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    text = page()
    if "--check" in arguments:
        if PAGE.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write("docs/configuration.md is not in step: run python -m tools.configuration_page\n")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
