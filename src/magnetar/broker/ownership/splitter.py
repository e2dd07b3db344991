# SPDX-License-Identifier: Apache-2.0
"""Splits a bundle that this broker has: its parts are claimed first, then the new bounds are put on record.

The topics are served without a break, because who serves them does not change. The bounds are written only over the
version that they were cut from; when someone else was faster, the parts are given up and the bounds read again.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from magnetar.broker.ownership.bundle_ranges import BundleRanges
from magnetar.broker.ownership.bundles import Bundle, Bundles
from magnetar.broker.ownership.cluster_ownership import ClusterOwnership
from magnetar.broker.ownership.splitting import TopicPlace, split_points
from magnetar.errors import BadSetting, BadVersion, MetadataError, ServiceNotReady
from magnetar.metadata.coordination import Claim, ClaimState

_ATTEMPTS: Final = 7
_ASK_AGAIN_S: Final = 0.5

_log = logging.getLogger(__name__)


class Splitter:
    def __init__(
        self,
        ranges: BundleRanges,
        ownership: ClusterOwnership | None,
        places: Callable[[Bundle], Awaitable[Sequence[TopicPlace]]],
    ) -> None:
        """Without ownership every bundle is this broker's. `places` are the topics of a bundle, loaded or not."""
        self._ranges = ranges
        self._ownership = ownership
        self._places = places

    async def split(self, bundle: Bundle, algorithm: str, positions: Sequence[int] = ()) -> list[Bundle]:
        """Cut a bundle; returns its parts. BadSetting when it cannot be cut there."""
        for _ in range(_ATTEMPTS):
            bundles = await self._ranges.fresh(bundle.namespace)
            if not bundles.has(bundle):
                raise BadSetting(f"{bundle} is no bundle of {bundle.namespace} any more")
            points = split_points(algorithm, bundle, await self._places(bundle), positions)
            if not points:
                raise BadSetting(f"{bundle} cannot be cut by {algorithm}: there is nothing to put apart")
            parts = [part for part in bundles.split(bundle, points).all() if not bundles.has(part)]
            try:
                await self._record(bundles, bundle, points, parts)
            except BadVersion:
                continue
            _log.info("%s is split into %s", bundle, ", ".join(part.range for part in parts))
            return parts
        raise ServiceNotReady(f"The bundles of {bundle.namespace} are changed by others all the time; try again")

    async def _record(self, bundles: Bundles, bundle: Bundle, points: list[int], parts: list[Bundle]) -> None:
        ownership = self._ownership
        if ownership is None:
            await self._ranges.write_split(bundles, bundle, points)
            return
        whole = ownership.claim_of(bundle)
        if whole is None:
            raise ServiceNotReady(f"{bundle} is not this broker's any more")
        claims: dict[Bundle, Claim] = {}
        try:
            for part in parts:
                claims[part] = await ownership.lock(part)
            await self._write(bundles, bundle, points, whole)
        except BaseException:
            for claim in claims.values():
                await claim.release()
            raise
        ownership.hold_parts(bundle, claims)
        await whole.release()

    async def _write(self, bundles: Bundles, bundle: Bundle, points: list[int], whole: Claim) -> None:
        """Put the bounds on record; when an answer is lost, find out what became of them, holding bundle and parts.

        Only who has a bundle splits it, so one that is gone from the record was split by us.
        """
        is_unsure = is_refused = False
        while True:
            try:
                if is_unsure and not (await self._ranges.fresh(bundle.namespace)).has(bundle):
                    return
                await self._ranges.write_split(bundles, bundle, points)
                return
            except BadVersion:
                # Perhaps what we wrote before: whoever is refused has seen all that was written, and looks once more.
                if is_refused or not is_unsure:
                    raise
                is_refused = True
            except MetadataError as error:
                if whole.state not in (ClaimState.HELD, ClaimState.UNCERTAIN):
                    raise
                _log.warning("whether %s is split is not known, asking again: %s", bundle, error)
                is_unsure = True
                await asyncio.sleep(_ASK_AGAIN_S)
