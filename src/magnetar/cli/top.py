# SPDX-License-Identifier: Apache-2.0
"""`magnetar top`: the busiest topics of a cluster, live.

Asks every broker for its topics; for those shown, the owner for the age of the oldest message that is not
acknowledged. A broker that does not answer is said and left out.
Carries.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.access import access_of
from magnetar.cli.exits import Failure
from magnetar.cli.http import HttpApi
from magnetar.cli.output import show
from magnetar.cli.own_command import run_own, with_api
from magnetar.cli.top_rows import SORTS, TopRow, oldest_of, row_of, sorted_rows, topics_in
from magnetar.cli.verbs.verb import TOPIC, request
from magnetar.cli.words import Command, Kind, flag

COMMAND: Final = Command(
    "top",
    "Show the topics of a cluster, live: rates, backlog, lag, age of the oldest unacknowledged message.",
    ("prefix?",),
    (
        flag("--once", Kind.SWITCH, "Print once and end; so does --json."),
        flag("--interval -i", Kind.DECIMAL, "Seconds between two looks.", default=2.0),
        flag("--limit -n", Kind.NUMBER, "Topics shown.", default=30),
        flag("--sort -s", Kind.TEXT, "What comes first.", default="backlog", choices=" ".join(SORTS)),
    ),
)
_HEADS: Final = (
    "topic",
    "in/s",
    "out/s",
    "in",
    "prod",
    "cons",
    "subs",
    "backlog",
    "lag",
    "unacked",
    "oldest",
    "stored",
)


def run_top(words: Sequence[str]) -> int:
    return run_own(COMMAND, words, lambda given: with_api(given, lambda api: _top(api, given)))


class _Looks:
    """Looks at the cluster one after another; remembers the counters of the one before."""

    def __init__(self, api: HttpApi, given: dict[str, Any]) -> None:
        self._api = api
        self._given = given
        self._before: dict[str, Mapping[str, Any]] = {}
        self._before_ms = 0
        self.missing: list[str] = []

    def look(self) -> list[TopRow]:
        now_ms = self._api.now_ms()
        stats = self._all_topics()
        prefix = self._given["prefix"] or ""
        named = {name: each for name, each in stats.items() if prefix in name}
        seconds = (now_ms - self._before_ms) / 1000
        rows = [row_of(name, each, self._before.get(name), seconds) for name, each in named.items()]
        self._before, self._before_ms = stats, now_ms
        by = self._given["sort"]
        first = sorted_rows(rows, "backlog" if by == "age" else by)[: self._given["limit"]]
        return sorted_rows([self._with_age(row) for row in first], by)

    def _all_topics(self) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        self.missing = []
        for api in self._brokers():
            try:
                found.update(topics_in(api.get("/admin/v2/broker-stats/topics")))
            except Failure:
                if api is self._api:
                    raise
                self.missing.append(api.url)
            finally:
                if api is not self._api:
                    api.close()
        return found

    def _brokers(self) -> list[HttpApi]:
        clusters = self._api.get("/admin/v2/brokers/configuration/runtime").get("clusterName")
        addresses = self._api.get(f"/admin/v2/brokers/{clusters}") if clusters else []
        if len(addresses) < 2:
            return [self._api]
        access = access_of(self._given)
        scheme = access.admin_url.partition("://")[0]
        return [HttpApi(replace(access, admin_url=f"{scheme}://{place}"), 10) for place in addresses]

    def _with_age(self, row: TopRow) -> TopRow:
        if not row.backlog or not row.topic.startswith("persistent:"):
            return row
        query = (("getEarliestTimeInBacklog", "yes"),)
        try:
            stats = self._api.ask(
                request("GET", TOPIC + "/stats", {"topic": row.topic, "yes": True}, query=query)
            ).value
        except Failure:
            return row
        return row._replace(oldest_ms=oldest_of(stats))


def _top(api: HttpApi, given: dict[str, Any]) -> int:
    looks = _Looks(api, given)
    rows = looks.look()
    if given["json"]:
        show([row.shown(api.now_ms()) for row in rows], as_json=True)
        return exits.OK
    from rich.console import Console

    if given["once"] or not sys.stdout.isatty():
        console = Console(width=None if sys.stdout.isatty() else 200)
        console.print(_table(rows, looks, api.now_ms()))
        return exits.OK
    from rich.live import Live

    with Live(_table(rows, looks, api.now_ms()), screen=True, auto_refresh=False) as live:
        while True:
            api.pause(max(given["interval"], 0.2))
            live.update(_table(looks.look(), looks, api.now_ms()), refresh=True)


def _table(rows: list[TopRow], looks: _Looks, now_ms: int) -> Any:
    from rich.table import Table

    note = f"; no answer from {', '.join(looks.missing)}" if looks.missing else ""
    table = Table(title=f"{len(rows)} topics{note}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for place, head in enumerate(_HEADS):
        table.add_column(head, justify="left" if place == 0 else "right", no_wrap=place > 0, overflow="fold")
    for row in rows:
        cells = _cells(row, now_ms)
        table.add_row(*cells, style="bold red" if row.backlog and not row.consumers else None)
    return table


def _cells(row: TopRow, now_ms: int) -> list[str]:
    return [
        row.topic.removeprefix("persistent://"),
        f"{row.in_rate:,.1f}",
        f"{row.out_rate:,.1f}",
        f"{size_text(row.in_bytes_rate)}/s",
        str(row.producers),
        str(row.consumers),
        str(row.subscriptions),
        f"{row.backlog:,}",
        size_text(row.lag_bytes),
        f"{row.unacked:,}",
        "-" if row.oldest_ms is None else age_text((now_ms - row.oldest_ms) / 1000),
        size_text(row.storage_bytes),
    ]


def size_text(count: float) -> str:
    for unit in ("B", "K", "M", "G"):
        if abs(count) < 1024:
            return f"{count:.0f}{unit}" if unit == "B" else f"{count:.1f}{unit}"
        count /= 1024
    return f"{count:.1f}T"


def age_text(seconds: float) -> str:
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{max(seconds, 0) / size:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"
