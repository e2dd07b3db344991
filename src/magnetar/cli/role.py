# SPDX-License-Identifier: Apache-2.0
"""What the commands that run one role of a cluster have in common: flags to settings, the store, the announcement.

Assembles.
"""

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from magnetar.config.load import NoticeLevel, Settings, SettingsFile, load_settings
from magnetar.errors import BadSetting, CannotStart, MetadataError
from magnetar.metadata.format_level import FormatLevel
from magnetar.metadata.leaving import LeavingStore
from magnetar.metadata.open import open_store
from magnetar.metadata.split import SplitStore
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.loop import Process


class RoleFlags(NamedTuple):
    """The flags of every role; a role has its own beside them."""

    data_dir: str
    metadata: str | None = None
    config: tuple[str, ...] = ()
    ready_file: str | None = None
    json: bool = False


def role_settings(flags: RoleFlags, role: str, given: Mapping[str, str | None]) -> Settings:
    """Files, environment and flags as one; what deserves a word is said on stderr."""
    texts = {name: text for name, text in given.items() if text is not None}
    if flags.metadata is not None:
        texts["--metadata"] = flags.metadata
    if flags.json:
        texts["runtime.log_format"] = "json"
    files = [SettingsFile(name, _read(name)) for name in flags.config]
    settings = load_settings(files, os.environ, texts, role=role)
    for notice in settings.notices:
        if notice.level is NoticeLevel.WARNING:
            sys.stderr.write(f"magnetar: warning: {notice.text}\n")
    return settings


@asynccontextmanager
async def cluster_store(
    settings: Settings, disk: Disk, clock: WallClock, process: Process
) -> AsyncIterator[MetadataStore]:
    """The store that the whole cluster shares. CannotStart when it does not answer or is of a newer format level.

    A process that stops does not wait for a store that is away.
    """
    url = settings.metadata.url
    if url.partition(":")[0] in ("memory", "embedded"):
        raise CannotStart(
            f"{url} belongs to one process, and a cluster shares its metadata: "
            "give --metadata remote:HOST:PORT or zk:HOST:PORT"
        )
    store = await _opened(url, settings, disk, clock)
    shared = settings.metadata.configuration_url
    if shared and shared != url:
        try:
            store = SplitStore(store, await _opened(shared, settings, disk, clock))
        except BaseException:
            await store.close()
            raise
    leaving = LeavingStore(store)
    process.when_stopping(leaving.leave)
    try:
        await FormatLevel(leaving, settings.metadata.format_level_max).check()
        yield leaving
    finally:
        await leaving.close()


async def _opened(url: str, settings: Settings, disk: Disk, clock: WallClock) -> MetadataStore:
    try:
        return await open_store(url, disk=disk, clock=clock, settings=settings.metadata)
    except MetadataError as error:
        raise CannotStart(f"The metadata store {url} does not answer: {error}") from error


def announce(title: str, facts: Mapping[str, str], flags: RoleFlags, ready: Mapping[str, str | int]) -> None:
    """Say where it serves, to people and in the ready file."""
    width = max(len(name) for name in (*facts, "stop"))
    lines = [f"  {name:{width}}  {value}" for name, value in facts.items()]
    sys.stdout.write(
        "\n".join([title, *lines, f"  {'stop':{width}}  Ctrl-C, or SIGTERM to process {os.getpid()}"]) + "\n"
    )
    sys.stdout.flush()
    if flags.ready_file:
        target = Path(flags.ready_file)
        partial = target.with_name(target.name + ".partial")
        partial.write_text(json.dumps({**ready, "pid": os.getpid()}))
        partial.replace(target)


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"The file {name} given with --config cannot be read: {error}") from error
