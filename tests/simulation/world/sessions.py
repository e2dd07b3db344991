# SPDX-License-Identifier: Apache-2.0
"""The metadata sessions of simulated processes: one that dies or stands still stops talking to the store.

What heartbeats come to is decided here: the session of a silent process ages and ends after its timeout, whatever the
process believes.
"""

import asyncio
from dataclasses import dataclass, field

from tests.simulation.world.metadata_model import MetadataModel, ModelStore
from tests.simulation.world.process import SimProcess, current_process

_HEARTBEAT_S = 0.1


@dataclass(slots=True)
class Session:
    """One process's way to the metadata store, and why nothing passes on it now."""

    store: ModelStore
    process: SimProcess
    reasons: dict[str, None] = field(default_factory=dict)

    def block(self, reason: str) -> None:
        if not self.reasons:
            self.store.cut()
        self.reasons[reason] = None

    def unblock(self, reason: str) -> None:
        if reason in self.reasons:
            del self.reasons[reason]
            if not self.reasons:
                self.store.heal()


class Sessions:
    def __init__(self, metadata: MetadataModel) -> None:
        self.metadata = metadata
        self._open: list[Session] = []

    def open(self) -> ModelStore:
        """A session for the process that asks."""
        process = current_process.get()
        assert process is not None, "only processes have sessions"
        store = self.metadata.open_session()
        self._open.append(Session(store, process))
        return store

    def known(self) -> list[Session]:
        return list(self._open)

    def living(self) -> list[Session]:
        return [session for session in self._open if not session.process.dead]

    async def keep(self) -> None:
        """For ever: what the heartbeats of processes come to."""
        while True:
            for session in list(self._open):
                process = session.process
                if process.dead:
                    session.block("dead")
                    self._open.remove(session)
                elif process.paused:
                    session.block("paused")
                else:
                    session.unblock("paused")
            await asyncio.sleep(_HEARTBEAT_S)
