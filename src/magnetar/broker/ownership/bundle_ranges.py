# SPDX-License-Identifier: Apache-2.0
"""The bundles of every namespace, as local policies say; read when first asked for, kept right by watches.

A namespace that has none there gets those of its policies, written only if nobody was faster: all brokers then use
what the first one wrote. A split changes the version that was read and no other.
Carries.
"""

from magnetar.broker.ownership.bundles import Bundle, Bundles, decode_bounds, encode_bounds, equal_bounds
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadVersion, ServiceNotReady, TopicNotFound
from magnetar.metadata.cache import RecordCache
from magnetar.metadata.json_record import decode_json, encode_json
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.names import LOCAL_POLICIES_ROOT, NamespaceName

_WRITE_ATTEMPTS = 10


class BundleRanges:
    def __init__(self, store: MetadataStore, settings: MetadataSettings | None = None) -> None:
        self._store = store
        self._cache = RecordCache(
            store, LOCAL_POLICIES_ROOT, decode=decode_json, encode=encode_json, settings=settings or MetadataSettings()
        )

    async def of(self, namespace: NamespaceName) -> Bundles:
        """The bundles of a namespace. TopicNotFound when there is no such namespace."""
        path = namespace.local_policies_path
        for _ in range(_WRITE_ATTEMPTS):
            kept = await self._cache.get(path)
            if kept is not None:
                bounds = decode_bounds(kept.value.get("bundles"), path)
                if bounds is not None:
                    return Bundles(namespace, bounds, kept.version)
            await self._copy_from_policies(namespace, None if kept is None else kept.version)
        raise ServiceNotReady(f"The bundles of {namespace} are changed by others all the time; try again")

    async def fresh(self, namespace: NamespaceName) -> Bundles:
        """As `of`, from the store itself."""
        self._cache.forget(namespace.local_policies_path)
        return await self.of(namespace)

    async def write_split(self, bundles: Bundles, bundle: Bundle, points: list[int]) -> Bundles:
        """Put a split on record. BadVersion when the bundles are not what they were."""
        path = bundles.namespace.local_policies_path
        record = await self._store.get(path)
        if record is None or record.version != bundles.version:
            self._cache.forget(path)
            raise BadVersion(f"The bundles of {bundles.namespace} were changed by someone else")
        following = bundles.split(bundle, points)
        value = {**decode_json(record.value), "bundles": encode_bounds(following.bounds)}
        try:
            stored = await self._store.put(path, encode_json(value), expected_version=record.version)
        finally:
            self._cache.forget(path)
        return following._replace(version=stored.version)

    def close(self) -> None:
        self._cache.close()

    async def _copy_from_policies(self, namespace: NamespaceName, version: int | None) -> None:
        policies = await self._store.get(namespace.policies_path)
        if policies is None:
            raise TopicNotFound(f"Namespace not found: {namespace}. Create it, or use one that exists")
        bounds = decode_bounds(decode_json(policies.value).get("bundles"), namespace.policies_path) or equal_bounds(1)
        path = namespace.local_policies_path
        present = None if version is None else await self._store.get(path)
        value = {**({} if present is None else decode_json(present.value)), "bundles": encode_bounds(bounds)}
        try:
            await self._store.put(
                path, encode_json(value), expected_version=MUST_NOT_EXIST if present is None else present.version
            )
        except BadVersion:
            pass  # another broker was faster: its bundles are everybody's
        finally:
            self._cache.forget(path)
