# SPDX-License-Identifier: Apache-2.0
"""While a world runs: what storage confirms of users' cursors is written into its history, by whom and with what acks.

Watches production code from outside; changes nothing that it does.
"""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator
from unittest.mock import patch

from magnetar.managed_ledger.acked_entries import AckedEntries
from magnetar.managed_ledger.cursor_format import CursorSnapshot
from magnetar.managed_ledger.cursor_store import CursorStore, Snapshot
from magnetar.names import TopicName
from tests.simulation.world.checkers.saved_cursors import SavedAcks
from tests.simulation.world.history import History
from tests.simulation.world.process import current_process

Save = Callable[[CursorStore, Snapshot], Awaitable[None]]


@contextlib.contextmanager
def witnessed_cursors(history: History, topics: Collection[str], subscriptions: Collection[str]) -> Iterator[None]:
    logs = {TopicName.parse(topic).persistence_name: topic for topic in topics}

    def watched(save: Save) -> Save:
        async def save_and_tell(store: CursorStore, snapshot: Snapshot) -> None:
            topic = logs.get(store._log.name)
            if topic is None or store._name not in subscriptions:
                return await save(store, snapshot)
            given: list[SavedAcks] = []

            def noted() -> tuple[CursorSnapshot, int]:
                taken = snapshot()
                given.append(_frozen(taken[0]))
                return taken

            await save(store, noted)
            # The last state that was asked for is the one that was written. None was if nothing had changed.
            if given:
                operation = history.invoke(_process(), "save", (topic, store._name))
                history.ok(operation, given[-1])

        return save_and_tell

    with (
        patch.object(CursorStore, "save", watched(CursorStore.save)),
        patch.object(CursorStore, "close", watched(CursorStore.close)),
    ):
        yield


def _frozen(snapshot: CursorSnapshot) -> SavedAcks:
    acked = snapshot.acked
    entries = [(ledger_id, entry_id) for ledger_id in acked.ledgers() for entry_id in _entries(acked, ledger_id)]
    batches = [((position[0], position[1]), bits) for position, bits in snapshot.batches.items()]
    mark = snapshot.mark_delete
    return SavedAcks((mark.ledger_id, mark.entry_id), tuple(sorted(entries)), tuple(sorted(batches)))


def _entries(acked: AckedEntries, ledger_id: int) -> list[int]:
    bitmap = acked.bitmap(ledger_id)
    return [] if bitmap is None else list(bitmap)


def _process() -> str:
    process = current_process.get()
    assert process is not None
    return process.name
