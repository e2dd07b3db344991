# SPDX-License-Identifier: Apache-2.0
"""What befalls the way to the metadata store: cuts, outages, sessions that end, requests and answers that are lost."""

from collections.abc import Callable
from contextvars import Context
from functools import partial
from random import Random

from tests.simulation.world.sessions import Session, Sessions
from tests.simulation.world.world import World

_CUT = "cut by the nemesis"


class MetadataWeather:
    """Adds its kinds to the nemesis of the world; `heal` ends all of it."""

    def __init__(self, world: World, sessions: Sessions, random: Random) -> None:
        self._world = world
        self._sessions = sessions
        self._model = sessions.metadata
        self._random = random
        self._healed = False
        nemesis = world.nemesis
        nemesis.add("metadata-cut", self._cut, 0.02, 0.3)
        nemesis.add("metadata-outage", self._outage, 0.01, 0.1)
        nemesis.add("metadata-expiry", self._expire, 0.01, 0.2)
        nemesis.add("metadata-answers-lost", self._lose_answers, 0.02, 0.2)

    def heal(self) -> None:
        self._healed = True
        if self._model.is_out:
            self._model.end_outage()
        self._calm()
        for session in self._sessions.known():
            session.unblock(_CUT)

    def _cut(self) -> bool:
        session = self._session()
        if session is None:
            return False
        session.block(_CUT)
        self._later(self._random.choice((0.2, 3.0, 10.0)) * self._random.random(), partial(session.unblock, _CUT))
        return True

    def _outage(self) -> bool:
        if self._model.is_out:
            return False
        self._model.begin_outage()
        self._later(self._random.uniform(0.1, 5.0), self._model.end_outage)
        return True

    def _expire(self) -> bool:
        session = self._session()
        if session is not None:
            self._model.expire(session.store)
        return session is not None

    def _lose_answers(self) -> bool:
        faults = self._model.faults
        faults.request_lost_chance = faults.answer_lost_chance = self._random.random() * 0.2
        self._later(self._random.uniform(0.1, 3.0), self._calm)
        return True

    def _calm(self) -> None:
        faults = self._model.faults
        faults.request_lost_chance = faults.answer_lost_chance = 0.0

    def _session(self) -> Session | None:
        living = self._sessions.living()
        return self._random.choice(living) if living else None

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self._world.loop.call_later(seconds, lambda: None if self._healed else call(), context=Context())
