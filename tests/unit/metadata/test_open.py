# SPDX-License-Identifier: Apache-2.0
"""From a URL to a store, or to a sentence that says what is wrong with it."""

import asyncio

import pytest

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadSetting
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.metadata.memory import MemoryStore
from magnetar.metadata.open import open_store
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.simulated_disk import SimulatedDisk

pytestmark = [pytest.mark.feature("F-MD-01")]


@pytest.mark.parametrize(("url", "kind"), [("memory:", MemoryStore), ("embedded:some/where", EmbeddedStore)])
@pytest.mark.feature("D-23")
def test_a_scheme_chooses_the_store(url: str, kind: type[MetadataStore]) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(url, disk=disk, clock=SystemClock(), settings=MetadataSettings())
        assert type(store) is kind
        await store.put("/a", b"")
        await store.close()
        if kind is EmbeddedStore:
            assert await disk.exists("some/where/lock")

    asyncio.run(check())


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "no known scheme"),
        ("memory", "no known scheme"),
        ("ftp:x", "no known scheme"),
        ("embedded:", "names no directory"),
        ("zk:", "names no server"),
        ("etcd:h:2379", "names no server: write etcd:http://HOST:2379"),
        ("oxia://h:6648", "oxia is not supported by this version"),
    ],
)
def test_a_bad_url_is_one_sentence(url: str, why: str) -> None:
    with pytest.raises(BadSetting, match=why):
        asyncio.run(open_store(url, disk=SimulatedDisk(), clock=SystemClock(), settings=MetadataSettings()))
