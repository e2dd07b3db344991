# SPDX-License-Identifier: Apache-2.0
"""Writes docs/admin-api.md from the routes: every method and path of Apache Pulsar 4.x, and whether it is served.

`python -m tools.admin_page` writes the page; with `--check` it only says whether the page is in step.
Assembles.
"""

import sys
from pathlib import Path

from magnetar.admin.app import all_routes
from magnetar.admin.coverage import served_paths
from magnetar.admin.known_paths import feature_of

PAGE = Path(__file__).parents[1] / "docs" / "admin-api.md"


def page() -> str:
    rows = served_paths(all_routes())
    served = sum(is_served for _, _, is_served in rows)
    nouns: dict[str, list[str]] = {}
    for method, path, is_served in rows:
        state = "served" if is_served else f"501: {feature_of(path)}"
        nouns.setdefault(_noun(path), []).append(f"| {method} | `{path}` | {state} |")
    lines = [
        "# Administration over HTTP\n",
        "Written by `python -m tools.admin_page` from the routes; do not edit.\n",
        f"Of the {len(rows)} methods and paths of Apache Pulsar 4.x, {served} are served. The others answer 501 with",
        "the name of the feature, never 404. `GET /openapi.json` and `/docs` describe what is served, `GET /metrics`",
        "and `GET /status.html` are beside it.\n",
    ]
    for noun, table in nouns.items():
        lines += [f"## {noun}\n", "| method | path | state |", "|---|---|---|", *table, ""]
    return "\n".join(lines)


def _noun(path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[2:4]) if path.startswith("/admin") else parts[1]


def main(arguments: list[str]) -> int:
    text = page()
    if "--check" in arguments:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write("docs/admin-api.md is not in step: run python -m tools.admin_page\n")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
