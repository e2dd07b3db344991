# SPDX-License-Identifier: Apache-2.0
"""What a bookie answers over HTTP about the whole cluster, at BookKeeper's paths: ledgers, bookies, auto-recovery.

The bookie itself knows none of this; the metadata and a ledger client do.
Assembles.
"""

from dataclasses import fields
from typing import Any, Final

from magnetar.bookie.http_routes import Answer, Asked, Routes, answered, said
from magnetar.cli.described import described
from magnetar.cli.ledger_client import LedgerClient
from magnetar.config.load import Settings
from magnetar.errors import MagnetarError, NoSuchLedger
from magnetar.ledger.auditor_election import current_auditor
from magnetar.ledger.auto_recovery import AutoRecovery
from magnetar.ledger.repair_list import RepairList
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.metrics import Metrics

_LEDGERS_PER_PAGE: Final = 100
_ENTRIES_PER_PAGE: Final = 1_000
_READ_BYTES_MAX: Final = 4 * 1024 * 1024


def shown(settings: Settings) -> dict[str, str]:
    """What a bookie runs with, key by key; secrets are left out."""
    return {
        f"{owner}.{each.name}": str(getattr(getattr(settings, owner), each.name))
        for owner in ("bookie", "bookie_server", "ledger", "placement", "channel", "repair")
        for each in fields(getattr(settings, owner))
        if each.repr
    }


class ClusterInventory:
    def __init__(self, store: MetadataStore, client: LedgerClient, clock: WallClock, settings: Settings) -> None:
        self._store = store
        self._client = client
        self._repairs = RepairList(store, clock, "http")
        self._recovery = AutoRecovery(store, client.ledgers, client.bookies, clock, settings.repair, "http")

    def describe(self, metrics: Metrics) -> None:
        """What the ledger client of this process counts."""
        placement = self._client.placement
        for name, meaning, source in (
            ("ensembles_chosen", "Choices of bookies.", lambda: placement.choices),
            (
                "ENSEMBLE_NOT_ADHERING_TO_PLACEMENT_POLICY_COUNT",
                "Choices that span fewer racks or regions than they should.",
                lambda: placement.choices_loosened,
            ),
        ):
            metrics.asked_counters(f"bookkeeper_client_{name}", meaning, ()).series().source = source

    def routes(self) -> Routes:
        recovery = "/api/v1/autorecovery"
        return {
            ("GET", "/api/v1/ledger/list"): self._ledgers,
            ("GET", "/api/v1/ledger/metadata"): self._metadata,
            ("GET", "/api/v1/ledger/read"): self._read,
            ("DELETE", "/api/v1/ledger/delete"): self._delete,
            ("GET", "/api/v1/bookie/list_bookies"): self._bookies,
            ("GET", "/api/v1/bookie/list_bookie_info"): self._spaces,
            ("GET", "/api/v1/bookie/cluster_info"): self._cluster,
            ("GET", f"{recovery}/status"): self._status,
            ("PUT", f"{recovery}/status"): self._switch,
            ("GET", f"{recovery}/who_is_auditor"): self._auditor,
            ("GET", f"{recovery}/list_under_replicated_ledger"): self._marked,
            ("GET", f"{recovery}/lost_bookie_recovery_delay"): self._delay,
            ("PUT", f"{recovery}/lost_bookie_recovery_delay"): self._set_delay,
            ("PUT", f"{recovery}/trigger_audit"): self._audit,
            ("PUT", f"{recovery}/decommission"): self._decommission,
        }

    # --- ledgers ------------------------------------------------------------------------------

    async def _ledgers(self, asked: Asked) -> Answer:
        """Ids, or records if asked, page by page where a page is asked for."""
        catalog = self._client.ledgers.catalog
        page = asked.number("page", 0)
        first = (page - 1) * _LEDGERS_PER_PAGE if page > 0 else 0
        found: dict[str, Any] = {}
        at = -1
        async for ledger_id in catalog.ledger_ids():
            at += 1
            if at < first:
                continue
            if page > 0 and len(found) >= _LEDGERS_PER_PAGE:
                break
            found[str(ledger_id)] = None
            if asked.flag("print_metadata"):
                try:
                    found[str(ledger_id)] = described((await catalog.load(ledger_id)).record)
                except NoSuchLedger:
                    del found[str(ledger_id)]
        return answered(found)

    async def _metadata(self, asked: Asked) -> Answer:
        ledger_id = asked.number("ledger_id")
        record = (await self._client.ledgers.catalog.load(ledger_id)).record
        return answered({str(ledger_id): described(record)})

    async def _read(self, asked: Asked) -> Answer:
        """A page of entries; a ledger that is still written is read as far as it is confirmed, and not fenced."""
        ledgers, ledger_id = self._client.ledgers, asked.number("ledger_id")
        password = (await ledgers.catalog.load(ledger_id)).record.password
        reader = await ledgers.open_without_recovery(ledger_id, password=password)
        try:
            end = reader.last_entry if reader.is_closed else await reader.read_last_confirmed()
            first = asked.number("start_entry_id", 0) + (asked.number("page", 1) - 1) * _ENTRIES_PER_PAGE
            last = min(end, asked.number("end_entry_id", end), first + _ENTRIES_PER_PAGE - 1)
            found: dict[str, str] = {}
            while first <= last:
                for body in await reader.read(first, last, bytes_max=_READ_BYTES_MAX):
                    found[str(first)] = bytes(body).decode("utf-8", errors="backslashreplace")
                    first += 1
        finally:
            reader.close()
        return answered(found)

    async def _delete(self, asked: Asked) -> Answer:
        await self._client.ledgers.delete(asked.number("ledger_id"))
        return said("Deleted.")

    # --- bookies ------------------------------------------------------------------------------

    async def _bookies(self, asked: Asked) -> Answer:
        bookies = self._client.bookies
        found = bookies.read_only if asked.query.get("type") == "ro" else bookies.writable
        with_host = asked.flag("print_hostnames")
        return answered({bookie: bookie.rpartition(":")[0] if with_host else None for bookie in found})

    async def _spaces(self, asked: Asked) -> Answer:
        found: dict[str, str] = {}
        totals = [0, 0]
        for bookie in (*self._client.bookies.writable, *self._client.bookies.read_only):
            try:
                total, free = await self._client.channels(bookie).space()
            except MagnetarError as error:
                found[bookie] = str(error)
                continue
            totals = [totals[0] + total, totals[1] + free]
            found[bookie] = f": {{Free: {free}({free / 1e9:.3f}GB), Total: {total}({total / 1e9:.3f}GB)}},"
        total, free = totals
        found["ClusterInfo: "] = f"{{Free: {free}({free / 1e9:.3f}GB), Total: {total}({total / 1e9:.3f}GB)}}"
        return answered(found)

    async def _cluster(self, asked: Asked) -> Answer:
        bookies = self._client.bookies
        present = {*bookies.writable, *bookies.read_only}
        known = {*await bookies.known(), *present}
        auditor = await current_auditor(self._store)
        marked = [ledger_id async for ledger_id in self._repairs.marked()]
        return answered(
            {
                "auditorElected": auditor is not None,
                "auditorId": auditor or "",
                "clusterUnderReplicated": bool(marked),
                "ledgerReplicationEnabled": await self._repairs.is_enabled(),
                "totalBookiesCount": len(known),
                "writableBookiesCount": len(bookies.writable),
                "readonlyBookiesCount": len(bookies.read_only),
                "unavailableBookiesCount": len(known - present),
            }
        )

    # --- repairs ------------------------------------------------------------------------------

    async def _status(self, asked: Asked) -> Answer:
        return answered({"enabled": await self._repairs.is_enabled()})

    async def _switch(self, asked: Asked) -> Answer:
        if asked.query.get("enabled", "").lower() not in ("true", "false"):
            raise ValueError("the parameter enabled is true or false")
        await (self._repairs.enable() if asked.flag("enabled") else self._repairs.disable())
        return await self._status(asked)

    async def _auditor(self, asked: Asked) -> Answer:
        auditor = await current_auditor(self._store)
        return said("No auditor elected", 404) if auditor is None else said(f"Auditor: {auditor}")

    async def _marked(self, asked: Asked) -> Answer:
        found: dict[str, list[str]] = {}
        async for ledger_id in self._repairs.marked():
            mark = await self._repairs.look(ledger_id)
            if mark is not None and asked.query.get("missingreplica") in (None, *mark.missing):
                found[str(ledger_id)] = list(mark.missing)
        if not found:
            return said("No under replicated ledgers found", 404)
        return answered(found if asked.flag("printmissingreplica") else [int(ledger_id) for ledger_id in found])

    async def _delay(self, asked: Asked) -> Answer:
        return said(f"lostBookieRecoveryDelay value: {await self._repairs.lost_bookie_delay_s() or 0}")

    async def _set_delay(self, asked: Asked) -> Answer:
        delay = asked.document().get("delay_seconds")
        if not isinstance(delay, int) or delay < 0:
            raise ValueError("delay_seconds is a whole number of seconds")
        await self._repairs.set_lost_bookie_delay_s(delay)
        return said(f"Success set lost bookie recovery delay to {delay}")

    async def _audit(self, asked: Asked) -> Answer:
        await self._repairs.ask_for_audit()
        return said("Success trigger audit.")

    async def _decommission(self, asked: Asked) -> Answer:
        bookie = asked.document().get("bookie_src")
        if not isinstance(bookie, str) or not bookie:
            raise ValueError("bookie_src names a bookie")
        await self._recovery.decommission(bookie)
        return said("Success: the bookie's ledgers are on others, and its cookie is deleted.")
