# SPDX-License-Identifier: Apache-2.0
"""Looks at a soak from outside while it runs: who is connected, by the broker's word, and a line a minute."""

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.faults.soak_history import ONCE_TOPIC, TOPIC, History, Sample, calm_windows

_INTERVAL_S = 0.4
_ANSWER_LIMIT_S = 3.0
_STOP_LIMIT_S = 30.0
_CALM_SAMPLES = 60


class Ticking:
    """Calls something at fixed times of its own thread, whatever the others wait for."""

    def __init__(self, interval_s: float, call: Callable[[int], None]) -> None:
        self._interval_s = interval_s
        self._call = call
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(_STOP_LIMIT_S)

    def _run(self) -> None:
        count = 0
        while not self._stop.wait(max(0.0, self._began_s + (count + 1) * self._interval_s - time.monotonic())):
            count += 1
            self._call(count)


class Watch:
    """Asks the broker who is there, and since when. What it could not ask is no calm."""

    def __init__(self, web_url: str, history: History) -> None:
        self._web = httpx.Client(base_url=f"{web_url}/admin/v2/persistent", timeout=_ANSWER_LIMIT_S)
        self._history = history
        self._ticking: Ticking | None = None

    def start(self) -> None:
        self._ticking = Ticking(_INTERVAL_S, lambda _: self._look())

    def stop(self) -> None:
        assert self._ticking is not None
        self._ticking.stop()

    def calm_s(self, names: int) -> float:
        """How long nothing has been disturbed and so many producers and consumers have been connected."""
        with self._history.lock:
            samples = self._history.samples[-_CALM_SAMPLES:]
        members = samples[-1].members if samples else None
        windows = calm_windows(samples, self._history.disturbances)
        if members is None or len(members) != names or not windows or windows[-1].ended_s != samples[-1].asked_s:
            return 0.0
        return windows[-1].ended_s - windows[-1].began_s

    def backlogs(self) -> dict[str, int]:
        """By subscription; nothing when the broker does not answer."""
        stats = self._stats(TOPIC)
        return {} if stats is None else {name: each["msgBacklog"] for name, each in stats["subscriptions"].items()}

    def _look(self) -> None:
        asked_s = time.monotonic()
        shown = [self._stats(topic) for topic in (TOPIC, ONCE_TOPIC)]
        members = None
        if all(shown):
            members = frozenset(member for stats in shown if stats is not None for member in _members(stats))
        self._history.sample(Sample(asked_s, time.monotonic(), members))

    def _stats(self, topic: str) -> dict[str, Any] | None:
        try:
            answer = self._web.get(f"/{topic.partition('://')[2]}/stats")
        except httpx.HTTPError:
            return None
        stats: dict[str, Any] | None = answer.json() if answer.status_code == 200 else None
        return stats


def _members(stats: dict[str, Any]) -> list[str]:
    """One word for each connected producer and consumer; another one as soon as it has connected again."""
    members = [f"{each['producerName']} {each['address']} {each['connectedSince']}" for each in stats["publishers"]]
    for name, subscription in stats["subscriptions"].items():
        members += [
            f"{name}/{each['consumerName']} {each['address']} {each['connectedSince']}"
            for each in subscription["consumers"]
        ]
    return members
