# SPDX-License-Identifier: Apache-2.0
"""Records of the metadata store as JSON objects: read, made once, changed by whoever is first, deleted.

Every change is of the version that was read, and is made anew when another came first. Fields that we do not know stay
as they are, so that a record of Apache Pulsar's survives us.
Carries.
"""

from collections.abc import Callable
from typing import Any, Final

from magnetar.admin.audit import note_change
from magnetar.errors import BadVersion, NoRecord, ServiceNotReady
from magnetar.metadata.json_record import decode_json, encode_json
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore

_ATTEMPTS: Final = 10


class Records:
    __slots__ = ("store",)

    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    async def read(self, path: str) -> dict[str, Any] | None:
        record = await self.store.get(path)
        return None if record is None else decode_json(record.value, f"The record {path}")

    async def create(self, path: str, value: dict[str, Any]) -> bool:
        """False when there is one already."""
        try:
            await self.store.put(path, encode_json(value), expected_version=MUST_NOT_EXIST)
        except BadVersion:
            return False
        note_change(path, None, value)
        return True

    async def update(
        self, path: str, change: Callable[[dict[str, Any]], dict[str, Any]], *, create: bool = False
    ) -> dict[str, Any]:
        """Replace a record by what `change` makes of it; returns that. NoRecord when there is none and none is made."""
        for _ in range(_ATTEMPTS):
            record = await self.store.get(path)
            if record is None and not create:
                raise NoRecord(f"There is no record {path}")
            following = change({} if record is None else decode_json(record.value, f"The record {path}"))
            version = MUST_NOT_EXIST if record is None else record.version
            try:
                await self.store.put(path, encode_json(following), expected_version=version)
            except BadVersion:
                continue
            note_change(path, None if record is None else decode_json(record.value, f"The record {path}"), following)
            return following
        raise ServiceNotReady(f"The record {path} is changed by others all the time; try again")

    async def delete(self, path: str) -> bool:
        """False when there was none."""
        try:
            await self.store.delete(path)
        except NoRecord:
            return False
        note_change(path, {}, None)
        return True

    async def children(self, path: str) -> list[str]:
        return await self.store.children(path)
