# SPDX-License-Identifier: Apache-2.0
"""The way past the brokers: who reads ledgers without them must be able to read what they write."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from magnetar.config.metadata import FORMAT_LEVEL_NEWEST, MetadataSettings
from magnetar.errors import NewerFormat
from magnetar.metadata.durable_tree import DurableTree
from magnetar.metadata.format_level_record import PATH, LevelRecord, encode
from magnetar.metadata.remote import RemoteStore
from magnetar.metadata.remote_server import MetadataServer
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.spark.storage import Storage


def test_a_cluster_that_writes_newer_formats_is_not_read(loop_run: Callable[[Any], Any]) -> None:
    async def check() -> None:
        settings = MetadataSettings()
        tree = await DurableTree.open(SimulatedDisk(Random(5)), "md", clock=SystemClock(), settings=settings)
        server = MetadataServer(tree, settings)
        port = await server.start("127.0.0.1", 0)
        store = await RemoteStore.open("127.0.0.1", port, settings)
        await store.put(PATH, encode(LevelRecord(FORMAT_LEVEL_NEWEST + 1)))
        with pytest.raises(NewerFormat, match=f"reads up to {FORMAT_LEVEL_NEWEST}"):
            await Storage.open(f"remote:127.0.0.1:{port}")
        await store.close()
        await server.close()
        await tree.close()

    loop_run(check())
