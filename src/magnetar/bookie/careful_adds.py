# SPDX-License-Identifier: Apache-2.0
"""Every add that is not plainly fine: refused, held until there is room, or taken after all.

Owns what makes care necessary (no room, read-only, failed, closing), the adds that wait for it to end, and the refusals
that are told once per turn of the loop. The plain add never comes here.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from magnetar.bookie.add_runs import AddRuns, AddSource
from magnetar.bookie.counts import BookieCounts
from magnetar.bookie.entry_batches import ids_of
from magnetar.bookie.held_adds import HeldAdd, HeldAdds, HeldBatch
from magnetar.bookie.ledger_state import MASTER_KEY_BYTES_MAX
from magnetar.bookie.ledgers import Ledgers
from magnetar.config.bookie import BookieSettings
from magnetar.errors import Damaged
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.entry import METADATA_BYTES
from magnetar.wire.bookkeeper.plain_adds import PlainAdds

_LEARNT_TOGETHER_MAX: Final = 1_000

_log = logging.getLogger(__name__)


class CarefulAdds:
    """Invariant: `needed` is True whenever an add must not be taken as it comes."""

    __slots__ = (
        "_counts",
        "_entry_bytes_max",
        "_held",
        "_learning",
        "_ledgers",
        "_loop",
        "_refused",
        "_store",
        "_store_fine",
        "_tasks",
        "_timer",
        "_wait_max_s",
        "bookie",
        "cache_full",
        "ended",
        "journals_full",
        "needed",
        "read_only",
        "refusals",
    )

    def __init__(
        self,
        bookie: str,
        settings: BookieSettings,
        ledgers: Ledgers,
        tasks: Tasks,
        store: Callable[[HeldAdd], None],
        store_fine: Callable[[PlainAdds, int, AddSource], int],
        counts: BookieCounts,
    ) -> None:
        self.bookie = bookie
        self._loop = asyncio.get_running_loop()
        self._ledgers = ledgers
        self._tasks = tasks
        self._store = store
        self._store_fine = store_fine
        self._counts = counts
        self._entry_bytes_max = settings.entry_bytes_max
        self._wait_max_s = settings.held_adds_wait_max_ms / 1000
        self._held = HeldAdds(settings.held_adds_bytes_max, settings.held_adds_max)
        self._timer: asyncio.TimerHandle | None = None
        self._learning = False
        self._refused: dict[int, AddRuns] = {}
        self.cache_full = False
        self.journals_full = 0
        self.read_only = False
        self.ended = False
        self.needed = False
        # For metrics: how many adds were refused, by code.
        self.refusals: dict[int, int] = {}

    # --- inputs -----------------------------------------------------------------------------

    def add(self, add: HeldAdd) -> None:
        if self.ended:
            self._refuse(add, ReturnCode.IO_ERROR)
        elif not self._is_well_formed(add):
            self._refuse(add, ReturnCode.BAD_REQUEST)
        elif self._ledgers.table.is_deleted(add.ledger_id):
            self._refuse(add, ReturnCode.FENCED)
        elif self.read_only and not add.recovery:
            self._refuse(add, ReturnCode.READ_ONLY)
        elif add.ledger_id not in self._ledgers.states:
            self._hold_until_known(add)
        elif self.cache_full or self.journals_full or self._held:
            self._hold(add)
        else:
            self._take(add)

    def add_batch(self, adds: PlainAdds, source: AddSource) -> None:
        """Adds that came together, when there is no room or the first of them is not plainly fine."""
        batch = HeldBatch(self._loop.time(), adds, source, sum(map(len, adds.entries)))
        waits = self.cache_full or self.journals_full or self._held
        if self.ended or self.read_only or (waits and not self._held.has_room(batch)):
            for at in range(batch.entry_count):
                self.add(_one_of(batch, at))
        elif waits:
            self._hold(batch)
        else:
            self._take_batch(batch)

    def on_cache_full(self, is_full: bool) -> None:
        self.cache_full = is_full
        self._review()

    def on_journal_pressure(self, is_full: bool) -> None:
        self.journals_full += 1 if is_full else -1
        self._review()

    def on_read_only(self, read_only: bool) -> None:
        self.read_only = read_only
        self._review()

    def end(self) -> None:
        """The storage failed or closes: nothing is taken any more, and whoever waits is refused."""
        self.ended = True
        self._review()
        for add in self._held.take_all():
            self._refuse(add, ReturnCode.IO_ERROR)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- questions --------------------------------------------------------------------------

    @property
    def held(self) -> int:
        return self._held.count

    @property
    def held_bytes(self) -> int:
        return self._held.bytes_held

    # --- leaves -----------------------------------------------------------------------------

    def _is_well_formed(self, add: HeldAdd) -> bool:
        return (
            add.ledger_id >= 0
            and add.entry_id >= 0
            and len(add.master_key) <= MASTER_KEY_BYTES_MAX
            and METADATA_BYTES <= len(add.entry) <= self._entry_bytes_max
            and ids_of(add.entry) == (add.ledger_id, add.entry_id)
        )

    def _take(self, add: HeldAdd) -> None:
        state = self._ledgers.states[add.ledger_id]
        code = state.refusal(add.master_key, recovery=add.recovery)
        if code == ReturnCode.OK:
            self._store(add)
        else:
            self._refuse(add, code)

    def _take_batch(self, batch: HeldBatch) -> None:
        """Take what is fine, and look at the others one by one. Room is not asked for again before the next batch."""
        adds, source = batch.adds, batch.source
        at = 0
        while at < batch.entry_count:
            if not self.read_only:
                at = self._store_fine(adds, at, source)
            if at < batch.entry_count:
                self._take_next(_one_of(batch, at))
                at += 1

    def _take_next(self, add: HeldAdd) -> None:
        """An add whose turn it is."""
        if not self._is_well_formed(add):
            self._refuse(add, ReturnCode.BAD_REQUEST)
        elif add.ledger_id not in self._ledgers.states:
            self._hold_until_known(add)
        elif self.read_only and not add.recovery:
            self._refuse(add, ReturnCode.READ_ONLY)
        else:
            self._take(add)

    def _refuse(self, add: HeldAdd | HeldBatch, code: int) -> None:
        self.refusals[code] = self.refusals.get(code, 0) + add.entry_count
        if not self._refused:
            self._loop.call_soon(self._tell_refused)
        runs = self._refused.get(code)
        if runs is None:
            runs = self._refused[code] = AddRuns()
        if isinstance(add, HeldBatch):
            runs.add_all(add.source.batch_listener(add.adds.entries), 0, add.entry_count - 1)
        else:
            runs.add(add.listener, add.entry_id)

    def _tell_refused(self) -> None:
        refused, self._refused = self._refused, {}
        for code, runs in refused.items():
            runs.tell(self.bookie, code)

    def _hold_until_known(self, add: HeldAdd) -> None:
        if not self._held.hold_unknown(add):
            self._refuse(add, ReturnCode.TOO_MANY_REQUESTS)
        elif not self._learning:
            self._tasks.start(self._learn(), "unknown ledgers")
            self._learning = True

    async def _learn(self) -> None:
        """Read the states of ledgers that adds wait for, or begin the ledgers, and look at the adds again."""
        try:
            while ledger_ids := self._held.unknown(_LEARNT_TOGETHER_MAX):
                try:
                    await self._ledgers.load(ledger_ids)
                except (OSError, Damaged):
                    _log.exception("the states of ledgers %s cannot be read", ledger_ids)
                    for ledger_id in ledger_ids:
                        for add in self._held.take_known(ledger_id):
                            self._refuse(add, ReturnCode.IO_ERROR)
                    continue
                for ledger_id in ledger_ids:
                    self._look_again(ledger_id)
        finally:
            self._learning = False

    def _look_again(self, ledger_id: int) -> None:
        """What the index knows of a ledger is in memory now: an unknown one is new."""
        adds = self._held.take_known(ledger_id)
        is_new = ledger_id not in self._ledgers.states and not self._ledgers.table.is_deleted(ledger_id)
        if adds and is_new and not self.ended:
            self._ledgers.begin(ledger_id, adds[0].master_key)
        for add in adds:
            self.add(add)

    def _hold(self, add: HeldAdd | HeldBatch) -> None:
        if not self._held.hold(add._replace(since=self._loop.time())):
            self._refuse(add, ReturnCode.TOO_MANY_REQUESTS)
        elif self._timer is None:
            self._timer = self._loop.call_later(self._wait_max_s, self._refuse_overdue)
            self.needed = True

    def _refuse_overdue(self) -> None:
        self._timer = None
        now = self._loop.time()
        while (since := self._held.oldest_since()) is not None and since + self._wait_max_s <= now:
            overdue = self._held.take()
            assert overdue is not None
            self._refuse(overdue, ReturnCode.TOO_MANY_REQUESTS)
        if since is not None:
            self._timer = self._loop.call_at(since + self._wait_max_s, self._refuse_overdue)
        self._review()

    def _review(self) -> None:
        """Room may have come or gone: take what waits while there is some."""
        while not (self.ended or self.cache_full or self.journals_full):
            add = self._held.take()
            if add is None:
                break
            self._counts.held.observe((self._loop.time() - add.since) * 1000, add.entry_count)
            if isinstance(add, HeldBatch):
                self._take_batch(add)
            else:
                self._take_next(add)
        self.needed = bool(self.ended or self.read_only or self.cache_full or self.journals_full or self._held)


def _one_of(batch: HeldBatch, at: int) -> HeldAdd:
    entry = batch.adds.entries[at]
    ledger_id, entry_id = ids_of(entry)
    listener = batch.source.ledger_listener(ledger_id)
    return HeldAdd(batch.since, ledger_id, entry_id, entry, batch.adds.master_key, listener, recovery=False)
