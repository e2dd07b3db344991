# SPDX-License-Identifier: Apache-2.0
"""Which cluster a metadata store belongs to: written once, compared at every start, never changed.

Pulsar keeps no such record, so a broker with a wrong URL or name would quietly become part of somebody else's cluster.
Carries.
"""

import json
from typing import Final

from magnetar.errors import BadVersion, CannotStart
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore

PATH: Final = "/magnetar/cluster"
VERSION: Final = 1


async def check_cluster(store: MetadataStore, name: str) -> None:
    """The store becomes this cluster's when it is nobody's. CannotStart when it is another's."""
    record = await store.get(PATH)
    if record is None:
        value = json.dumps({"version": VERSION, "name": name}).encode()
        try:
            await store.put(PATH, value, expected_version=MUST_NOT_EXIST)
            return
        except BadVersion:
            record = await store.get(PATH)
    if record is None:
        raise CannotStart(f"The record {PATH} of the metadata store comes and goes: is it being deleted?")
    found = _decode(record.value)
    if found != name:
        raise CannotStart(
            f"This metadata store belongs to cluster {found!r}, and clusterName is {name!r}: "
            "correct clusterName, or give the URL of the right store. Nothing was changed"
        )


def _decode(value: bytes) -> str:
    try:
        found = json.loads(value)
        version, name = found["version"], found["name"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CannotStart(
            f"The record {PATH} of the metadata store cannot be read ({error}): is it the right store? "
            "Nothing was changed"
        ) from error
    if version != VERSION or not isinstance(name, str):
        raise CannotStart(
            f"The metadata store was written by a newer Magnetar: {PATH} has version {version!r}, this one knows "
            f"{VERSION}. Start the newer version. Nothing was changed"
        )
    return name
