# SPDX-License-Identifier: Apache-2.0
"""Which of several clusters a client talks to: the primary while it answers, a secondary while it does not.

`AutoClusterFailover` is what the application asks for; `Failover` watches and switches. A switch takes place when the
present cluster has not answered for the failover delay, and back to the primary when that has answered for the
switch-back delay. Everything attached finds its way to the new cluster by itself.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from magnetar.client.service_url import ServiceUrl
from magnetar.errors import BadSetting

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AutoClusterFailover:
    """Given to `Client` in place of a service URL."""

    primary: str
    secondary: Sequence[str]
    check_interval_ms: int = 30_000
    failover_delay_ms: int = 30_000
    switch_back_delay_ms: int = 30_000

    def __post_init__(self) -> None:
        if not self.secondary:
            raise BadSetting("automatic failover needs a secondary cluster")
        kinds = {ServiceUrl.parse(text).is_http for text in (self.primary, *self.secondary)}
        if len(kinds) > 1 or kinds == {True}:
            raise BadSetting("automatic failover needs pulsar:// or pulsar+ssl:// for every cluster")


class ClusterChoice:
    """Which cluster to use, from what answered when. Index 0 is the primary."""

    def __init__(self, clusters: int, failover_delay_s: float, switch_back_delay_s: float) -> None:
        self.current = 0
        self._clusters = clusters
        self._failover_delay_s = failover_delay_s
        self._switch_back_delay_s = switch_back_delay_s
        self._failing_since: float | None = None
        self._primary_well_since: float | None = None

    def on_checked(self, answers: Sequence[bool], now_s: float) -> bool:
        """Take note of who answered now; true if `current` changed."""
        if answers[self.current]:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = now_s
        if self.current == 0 or not answers[0]:
            self._primary_well_since = None
        elif self._primary_well_since is None:
            self._primary_well_since = now_s
        if self._primary_well_since is not None and now_s - self._primary_well_since >= self._switch_back_delay_s:
            return self._switch(0)
        if self._failing_since is not None and now_s - self._failing_since >= self._failover_delay_s:
            well = [index for index in range(self._clusters) if answers[index] and index != self.current]
            if well:
                return self._switch(well[0])
        return False

    def _switch(self, index: int) -> bool:
        self.current = index
        self._failing_since = self._primary_well_since = None
        return True


class Failover:
    """Checks the clusters from time to time and says where to go."""

    def __init__(
        self,
        wanted: AutoClusterFailover,
        probe: Callable[[ServiceUrl], Awaitable[bool]],
        switch: Callable[[ServiceUrl], None],
    ) -> None:
        self._urls = [ServiceUrl.parse(text) for text in (wanted.primary, *wanted.secondary)]
        self._interval_s = wanted.check_interval_ms / 1000
        self._probe = probe
        self._switch = switch
        self.choice = ClusterChoice(
            len(self._urls), wanted.failover_delay_ms / 1000, wanted.switch_back_delay_ms / 1000
        )

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._interval_s)
            answers = await asyncio.gather(*(self._probe(url) for url in self._urls))
            if self.choice.on_checked(answers, loop.time()):
                url = self._urls[self.choice.current]
                _log.warning("switching to cluster %s", url.text)
                self._switch(url)
