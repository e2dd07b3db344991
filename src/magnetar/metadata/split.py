# SPDX-License-Identifier: Apache-2.0
"""Two stores seen as one: what clusters share lies in the configuration store, everything else in the cluster's own.

The wall runs where Pulsar has it: clusters, tenants, namespaces and partitioned topics below /admin are shared; bundles
and dynamic settings are the cluster's own. Ephemeral records are never shared, so the session is that of the own store.
Carries.
"""

from collections.abc import Callable
from typing import Final

from magnetar.errors import BadPath
from magnetar.metadata.paths import ROOT, is_within
from magnetar.metadata.store import Change, MetadataStore, Record, SessionEvent, Stored

SHARED_ROOT: Final = "/admin"
OWN_BELOW_SHARED: Final = ("/admin/local-policies", "/admin/configuration", "/admin/flags")


def is_shared(path: str) -> bool:
    return is_within(path, SHARED_ROOT) and not any(is_within(path, own) for own in OWN_BELOW_SHARED)


class SplitStore(MetadataStore):
    """Owns both stores: closing it closes them."""

    def __init__(self, own: MetadataStore, shared: MetadataStore) -> None:
        self._own = own
        self._shared = shared

    def _of(self, path: str) -> MetadataStore:
        return self._shared if is_shared(path) else self._own

    async def get(self, path: str) -> Record | None:
        return await self._of(path).get(path)

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        if ephemeral and is_shared(path):
            raise BadPath(f"{path} lies in the configuration store, which has no ephemeral records")
        return await self._of(path).put(
            path, value, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
        )

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        await self._of(path).delete(path, expected_version=expected_version)

    async def children(self, path: str) -> list[str]:
        if path not in (ROOT, SHARED_ROOT):
            return await self._of(path).children(path)
        names = {*await self._own.children(path), *await self._shared.children(path)}
        return sorted(names)

    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        if prefix not in (ROOT, SHARED_ROOT):
            return self._of(prefix).watch(prefix, listener)
        end_own, end_shared = self._own.watch(prefix, listener), self._shared.watch(prefix, listener)

        def end() -> None:
            end_own()
            end_shared()

        return end

    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._own.watch_session(listener)

    async def close(self) -> None:
        try:
            await self._own.close()
        finally:
            await self._shared.close()
