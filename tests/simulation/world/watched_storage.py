# SPDX-License-Identifier: Apache-2.0
"""A bookie's storage, unchanged, with a witness: what it acknowledges is durable (R1), and a fence is for ever (I6).

The witness does not ask the code under test: it looks for the entry's bytes in the disk's model, and remembers over all
lives of the bookie which fences and entries were acknowledged: what the record still asks of it, it never denies (I14).
Carries.
"""

from collections.abc import Callable

from magnetar.bookie.add_runs import AddListener, AddSource
from magnetar.bookie.entry_batches import ids_of
from magnetar.bookie.storage import BookieStorage
from magnetar.errors import NoSuchEntry, NoSuchLedger
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_pages import Pages
from magnetar.wire.bookkeeper.plain_adds import PlainAdds
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.node import Node

_OK = 0


class WatchedStorage(BookieStorage):
    """Made by `open`, like any other; `watch` puts the witness in."""

    _witness: "Witness | None" = None

    def watch(self, witness: "Witness") -> None:
        self._witness = witness

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        master_key: bytes,
        listener: AddListener,
        recovery: bool = False,
    ) -> None:
        if self._witness is not None:
            listener = self._witness.before(listener, ledger_id, entry_id, entry, recovery)
        super().add(ledger_id, entry_id, entry, master_key, listener, recovery)

    def add_run(
        self, ledger_id: int, first: int, entries: list[bytes], master_key: bytes, listener: AddListener
    ) -> None:
        watching = listener
        if self._witness is not None:
            for entry_id, entry in enumerate(entries, first):
                watching = self._witness.before(listener, ledger_id, entry_id, entry, recovery=False)
        super().add_run(ledger_id, first, entries, master_key, watching)

    def add_batch(self, adds: PlainAdds, source: AddSource) -> None:
        if self._witness is not None:
            source = _WatchedSource(self._witness, source, adds.entries)
        super().add_batch(adds, source)

    async def read(self, ledger_id: int, entry_id: int, fence_key: bytes | None = None) -> bytes:
        witness = self._witness if fence_key is not None else None
        try:
            entry = await super().read(ledger_id, entry_id, fence_key)
        except (NoSuchEntry, NoSuchLedger):
            if self._witness is not None:
                self._witness.denied(ledger_id, entry_id)
            if witness is not None:
                witness.fenced(ledger_id)
            raise
        if witness is not None:
            witness.fenced(ledger_id)
        return entry

    async def read_batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        try:
            return await super().read_batch(ledger_id, first, count_max, bytes_max)
        except (NoSuchEntry, NoSuchLedger):
            if self._witness is not None:
                self._witness.denied(ledger_id, first)
            raise


class Witness:
    """`fences` outlives the bookie's process: the ledgers whose fence some life of it has acknowledged."""

    def __init__(
        self,
        node: Node,
        journal: str,
        fences: dict[int, None],
        on_held: Callable[[int, int, bool], None],
        must_hold: Callable[[int, int], bool],
    ) -> None:
        self._node = node
        self._journal = journal
        self._on_held = on_held
        self._must_hold = must_hold
        self._fences = fences
        self._watching: dict[tuple[AddListener, int, bool], _Watching] = {}

    def before(self, listener: AddListener, ledger_id: int, entry_id: int, entry: bytes, recovery: bool) -> AddListener:
        """Who is told instead, and tells the listener: one for all adds that it waits for in this ledger."""
        key = (listener, ledger_id, recovery)
        watching = self._watching.setdefault(key, _Watching(self, listener, ledger_id, recovery))
        watching.entries[entry_id] = entry
        return watching

    def fenced(self, ledger_id: int) -> None:
        self._fences[ledger_id] = None

    def denied(self, ledger_id: int, entry_id: int) -> None:
        if self._must_hold(ledger_id, entry_id):
            sentence = f"{self._node.name} acknowledged entry {entry_id} of ledger {ledger_id} and now denies it"
            self._node.world.check([Violation("I14 honest", sentence)])

    def acknowledged(self, ledger_id: int, entry_id: int, entry: bytes, *, recovery: bool) -> None:
        world = self._node.world
        world.durable_acks.checked += 1
        if not recovery and ledger_id in self._fences:
            sentence = f"{self._node.name} fenced ledger {ledger_id} and then took entry {entry_id} of its old writer"
            world.check([Violation("I6 fenced-cannot-commit", sentence)])
        if is_durable(self._node.disk, self._journal, entry):
            self._on_held(ledger_id, entry_id, recovery)
            return
        sentence = f"{self._node.name} acknowledged entry {entry_id} of ledger {ledger_id}, which no sync has covered"
        world.durable_acks.violated(sentence)


class _Watching:
    __slots__ = ("_ledger_id", "_listener", "_recovery", "_witness", "entries")

    def __init__(self, witness: Witness, listener: AddListener, ledger_id: int, recovery: bool) -> None:
        self._recovery = recovery
        self._witness = witness
        self._listener = listener
        self._ledger_id = ledger_id
        self.entries: dict[int, bytes] = {}

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        if code == _OK:
            for entry_id in range(first, last + 1):
                entry = self.entries[entry_id]
                self._witness.acknowledged(self._ledger_id, entry_id, entry, recovery=self._recovery)
        self._listener.on_added(bookie, first, last, code)


class _WatchedSource:
    """Who sent entries together: whoever is told of them is told through the witness."""

    def __init__(self, witness: Witness, source: AddSource, entries: list[bytes]) -> None:
        self._witness = witness
        self._source = source
        self._entries = entries

    def batch_listener(self, entries: list[bytes]) -> AddListener:
        return _WatchingBatch(self._witness, self._source.batch_listener(entries), entries)

    def ledger_listener(self, ledger_id: int) -> AddListener:
        listener = watching = self._source.ledger_listener(ledger_id)
        for entry in self._entries:
            owner, entry_id = ids_of(entry)
            if owner == ledger_id:
                watching = self._witness.before(listener, ledger_id, entry_id, entry, recovery=False)
        return watching


class _WatchingBatch:
    def __init__(self, witness: Witness, listener: AddListener, entries: list[bytes]) -> None:
        self._witness = witness
        self._listener = listener
        self._entries = entries

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        if code == _OK:
            for entry in self._entries[first : last + 1]:
                ledger_id, entry_id = ids_of(entry)
                self._witness.acknowledged(ledger_id, entry_id, entry, recovery=False)
        self._listener.on_added(bookie, first, last, code)


def is_durable(disk: SimulatedDisk, directory: str, entry: bytes) -> bool:
    """Whether these bytes are in a file of the directory, safe from a power loss, or were until they were damaged."""
    for path, pages in disk.kernel.names.files():
        if path.startswith(directory) and _holds(pages, entry) and disk.kernel.names.is_durable(path):
            return True
    return False


def _holds(pages: Pages, entry: bytes) -> bool:
    """What rots while it is on its way was stored all the same: a sync promises nothing about that."""
    content, harmed = pages.durable, pages.harmed
    if content.find(entry) >= 0:
        return True
    starts = {start for at in harmed for start in range(max(0, at - len(entry) + 1), at + 1)}
    return any(
        all(at + start in harmed for at, byte in enumerate(content[start : start + len(entry)]) if byte != entry[at])
        for start in starts
        if start + len(entry) <= len(content)
    )
