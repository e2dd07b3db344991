# SPDX-License-Identifier: Apache-2.0
"""What a bookie says of itself over HTTP, at BookKeeper's paths: state, disks, files, marks, ledgers, garbage.

Owns the answers' shape. Ledgers are listed page by page. Nothing here can change an entry; what other bookies and the
metadata know is not known here.
Carries.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from magnetar.bookie.http_routes import Answer, Asked, Routes, answered, said
from magnetar.bookie.storage import BookieStorage
from magnetar.bookie.version_three import Space

LEDGERS_PER_PAGE_MAX: Final = 10_000
_PREFIX: Final = "/api/v1/bookie"


class Inventory:
    def __init__(
        self, storage: BookieStorage, space: Callable[[], Awaitable[Space]], configuration: Mapping[str, str]
    ) -> None:
        self._storage = storage
        self._space = space
        self._configuration = configuration
        self._collecting = False
        self._compaction_suspended = False

    def routes(self) -> Routes:
        return {
            ("GET", "/heartbeat"): self._heartbeat,
            ("GET", "/api/v1/config/server_config"): self._config,
            ("GET", f"{_PREFIX}/state"): self._state,
            ("GET", f"{_PREFIX}/state/readonly"): self._read_only,
            ("PUT", f"{_PREFIX}/state/readonly"): self._set_read_only,
            ("GET", f"{_PREFIX}/is_ready"): self._is_ready,
            ("GET", f"{_PREFIX}/info"): self._info,
            ("GET", f"{_PREFIX}/last_log_mark"): self._marks,
            ("GET", f"{_PREFIX}/list_disk_file"): self._files,
            ("GET", f"{_PREFIX}/ledgers"): self._ledgers,
            ("GET", f"{_PREFIX}/gc"): self._gc_state,
            ("PUT", f"{_PREFIX}/gc"): self._collect,
            ("GET", f"{_PREFIX}/gc_details"): self._gc_details,
            ("GET", f"{_PREFIX}/gc/suspend_compaction"): self._compaction_state,
            ("PUT", f"{_PREFIX}/gc/suspend_compaction"): self._suspend,
            ("PUT", f"{_PREFIX}/gc/resume_compaction"): self._resume,
            ("GET", f"{_PREFIX}/consistency"): self._consistency,
        }

    # --- state --------------------------------------------------------------------------------

    async def _heartbeat(self, asked: Asked) -> Answer:
        return said("OK")

    async def _config(self, asked: Asked) -> Answer:
        return answered(dict(self._configuration))

    async def _state(self, asked: Asked) -> Answer:
        read_only = self._storage.is_read_only
        return answered(
            {
                "running": True,
                "readOnly": read_only,
                "shuttingDown": False,
                "availableForHighPriorityWrites": not read_only,
            }
        )

    async def _read_only(self, asked: Asked) -> Answer:
        return answered({"readOnly": self._storage.is_read_only})

    async def _set_read_only(self, asked: Asked) -> Answer:
        """It is listed as such at its next look; 409 when it has to stay read-only for want of room."""
        wanted = asked.document().get("readOnly")
        if not isinstance(wanted, bool):
            raise ValueError('the body is {"readOnly": true} or {"readOnly": false}')
        self._storage.ask_read_only(wanted)
        if self._storage.is_read_only and not wanted:
            return said("This bookie stays read-only: its disks are full, or cannot be written.", 409)
        return await self._read_only(asked)

    async def _is_ready(self, asked: Asked) -> Answer:
        return said("OK")

    async def _info(self, asked: Asked) -> Answer:
        space = await self._space()
        return answered({"freeSpace": space.free_bytes, "totalSpace": space.total_bytes})

    # --- disks --------------------------------------------------------------------------------

    async def _marks(self, asked: Asked) -> Answer:
        return answered(
            {
                f"LastLogMark: Journal Id - {mark.file_id}({mark.file_id:x}.txn)": f"Pos - {mark.offset}"
                for mark in self._storage.marks()
            }
        )

    async def _files(self, asked: Asked) -> Answer:
        files = await self._storage.holdings.files()
        wanted = asked.query.get("file_type")
        return answered(
            {
                f"{kind} files": "".join(f"{name}\t" for name in names)
                for kind, names in files.items()
                if wanted in (None, kind)
            }
        )

    async def _ledgers(self, asked: Asked) -> Answer:
        """Our own: the ledgers held here with the number of their entries, from an id on."""
        after = asked.number("after", -1)
        limit = min(max(asked.number("limit", 1_000), 1), LEDGERS_PER_PAGE_MAX)
        held = await self._storage.holdings.ledgers(after, limit)
        return answered({"ledgers": {str(ledger_id): count for ledger_id, count in held.items()}})

    async def _consistency(self, asked: Asked) -> Answer:
        """Our own: read everything that is held here, and say what is damaged."""
        await self._storage.checkpoint()
        damaged = await self._storage.housekeeping.check_consistency()
        entries = [{"ledger": each.ledger_id, "entry": each.entry_id, "reason": each.reason} for each in damaged]
        return answered({"passed": not damaged, "damaged": entries})

    # --- garbage ------------------------------------------------------------------------------

    async def _gc_state(self, asked: Asked) -> Answer:
        return answered({"is_in_force_gc": str(self._collecting).lower()})

    async def _collect(self, asked: Asked) -> Answer:
        self._collecting = True
        try:
            await self._storage.checkpoint()
            surplus = asked.flag("surplus")
            major = not self._compaction_suspended
            await asyncio.shield(self._storage.housekeeping.collect(major=major, surplus=surplus))
        finally:
            self._collecting = False
        return answered({"output": "Triggered GC on BookieServer"})

    async def _gc_details(self, asked: Asked) -> Answer:
        return answered([self._storage.housekeeping.details()])

    async def _compaction_state(self, asked: Asked) -> Answer:
        suspended = str(self._compaction_suspended).lower()
        return answered({"isMajorGcSuspended": suspended, "isMinorGcSuspended": suspended})

    async def _suspend(self, asked: Asked) -> Answer:
        return self._set_suspended(True)

    async def _resume(self, asked: Asked) -> Answer:
        return self._set_suspended(False)

    def _set_suspended(self, suspended: bool) -> Answer:
        self._compaction_suspended = suspended
        self._storage.housekeeping.suspend_compaction(suspended)
        return said("OK")
