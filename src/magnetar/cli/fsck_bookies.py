# SPDX-License-Identifier: Apache-2.0
"""The other half of `magnetar fsck`: what each bookie holds, against the records that ask for it.

A ledger on a bookie is asked for by a record, or its record is gone and it waits for garbage collection, or its record
names other bookies only. Asks bookies over HTTP, because BookKeeper's protocol cannot list ledgers.
Assembles.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import httpx

from magnetar.cli.bookkeeper_shell import Shell
from magnetar.errors import BookieUnavailable, NoSuchLedger
from magnetar.ledger.paths import AVAILABLE, READONLY
from magnetar.wire.bookkeeper.registry import HTTP_PROTOCOL, decode_listing

_PAGE: Final = 1_000
_TIMEOUT_S: Final = 600.0


class Totals:
    """What was looked at and found, over all ledgers and bookies."""

    def __init__(self) -> None:
        self.ledgers = 0
        self.copies = 0
        self.missing = 0
        self.unreachable = 0
        self.repaired = 0
        self.orphans = 0
        self.collected = 0
        self.damaged = 0
        # Ledgers that say whose they are, while their owner's records do not name them. They harm nobody.
        self.unknown = 0

    @property
    def is_clean(self) -> bool:
        settled = self.missing == self.repaired and self.orphans == self.collected
        return settled and not self.unreachable and not self.damaged


async def check_bookies(shell: Shell, totals: Totals, *, deep: bool, repair: bool) -> None:
    """One line per ledger that a bookie holds for nobody, and per damaged entry if everything is to be read."""
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as http:
        for bookie in (*shell.client.bookies.writable, *shell.client.bookies.read_only):
            try:
                url = await _url(shell, bookie)
                orphans = await _orphans(shell, http, url, bookie)
                if orphans and repair:
                    (await http.put(f"{url}/gc?surplus=true")).raise_for_status()
                    left = await _orphans(shell, http, url, bookie)
                    totals.collected += len(orphans) - len(left)
                totals.orphans += len(orphans)
                for ledger_id, why in orphans.items():
                    shell.say(f"{bookie}: ledger {ledger_id} {why}")
                if deep:
                    await _read_all(shell, http, url, bookie, totals)
            except (httpx.HTTPError, BookieUnavailable) as error:
                totals.unreachable += 1
                shell.say(f"{bookie} does not say which ledgers it holds: {error}")


async def _url(shell: Shell, bookie: str) -> str:
    for parent in (AVAILABLE, READONLY):
        record = await shell.store.get(f"{parent}/{bookie}")
        for endpoint in decode_listing(record.value) if record is not None else ():
            if endpoint.protocol == HTTP_PROTOCOL:
                return f"http://{endpoint.host}:{endpoint.port}/api/v1/bookie"
    raise BookieUnavailable("it lists no HTTP port")


async def _orphans(shell: Shell, http: httpx.AsyncClient, url: str, bookie: str) -> dict[int, str]:
    """Ledgers with entries on a bookie that no record asks of it, with the reason."""
    found: dict[int, str] = {}
    catalog = shell.client.ledgers.catalog
    async for ledger_id, entries in _held(http, url):
        if not entries:
            continue
        try:
            record = (await catalog.load(ledger_id)).record
        except NoSuchLedger:
            found[ledger_id] = "is not on record: it waits for garbage collection"
            continue
        if record.is_closed and bookie not in record.bookies():
            found[ledger_id] = "is asked of other bookies: a copy that a repair has left"
    return found


async def _held(http: httpx.AsyncClient, url: str) -> AsyncIterator[tuple[int, int]]:
    after = -1
    while True:
        answer = await http.get(f"{url}/ledgers?after={after}&limit={_PAGE}")
        answer.raise_for_status()
        page: dict[str, int] = answer.json()["ledgers"]
        for ledger_id, entries in page.items():
            after = max(after, int(ledger_id))
            yield int(ledger_id), entries
        if len(page) < _PAGE:
            return


async def _read_all(shell: Shell, http: httpx.AsyncClient, url: str, bookie: str, totals: Totals) -> None:
    """Every entry's own checksum, as the bookie finds it on its disks."""
    answer = await http.get(f"{url}/consistency")
    answer.raise_for_status()
    damaged: list[dict[str, Any]] = answer.json()["damaged"]
    totals.damaged += len(damaged)
    for entry in damaged:
        shell.say(f"{bookie}: entry {entry['entry']} of ledger {entry['ledger']} is damaged: {entry['reason']}")
