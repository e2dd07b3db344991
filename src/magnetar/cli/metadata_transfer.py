# SPDX-License-Identifier: Apache-2.0
"""`magnetar metadata export`, `import` and `verify`: files on one side, stores on the other.

Assembles.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from magnetar.config.load import load_settings
from magnetar.errors import BadSetting, CannotStart, MetadataError
from magnetar.ledger.paths import ID_GENERATOR, LONG_ID_GENERATOR
from magnetar.metadata.open import open_store
from magnetar.metadata.store import MetadataStore
from magnetar.metadata.transfer import (
    Difference,
    Moved,
    differences,
    export_records,
    import_records,
    store_differences,
)
from magnetar.metadata.transfer_format import LINE_BYTES_MAX
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.real_disk import RealDisk

PRODUCER_NAMES: Final = "/counters/producer-name"


def export_file(url: str, target: str) -> Moved:
    """The file appears when it is complete; one that is there is never touched."""
    if Path(target).exists():
        raise BadSetting(f"{target} exists and is not overwritten; choose another name")

    partial = Path(f"{target}.partial")
    try:
        with partial.open("wb") as file:

            async def run() -> Moved:
                async with opened(url, must_exist=True) as store:
                    return await export_records(store, file.write, await _sequences(store), SystemClock().now_ms())

            moved = asyncio.run(run())
            file.flush()
            os.fsync(file.fileno())
        # A link refuses a name that somebody else has taken meanwhile.
        os.link(partial, target)
    except OSError as error:
        raise BadSetting(f"{target} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    return moved


def import_file(url: str, source: str, *, merge: bool) -> Moved:
    async def run() -> Moved:
        async with opened(url) as store:
            return await import_records(store, _lines_of(source), source, merge=merge)

    return asyncio.run(run())


def verify_file(url: str, source: str) -> list[Difference]:
    async def run() -> list[Difference]:
        async with opened(url, must_exist=True) as store:
            return await differences(store, _lines_of(source)(), source)

    return asyncio.run(run())


def verify_stores(one: str, two: str) -> list[Difference]:
    async def run() -> list[Difference]:
        async with opened(one, must_exist=True) as first, opened(two, must_exist=True) as second:
            return await store_differences(first, second)

    return asyncio.run(run())


@asynccontextmanager
async def opened(url: str, *, must_exist: bool = False) -> AsyncIterator[MetadataStore]:
    """The store of a URL; the directory of an embedded one may be anywhere, and is made if need be and allowed."""
    directory, url = _place_of(url, must_exist=must_exist)
    disk = RealDisk(str(directory))
    try:
        settings = load_settings(environ=os.environ).metadata
        try:
            store = await open_store(url, disk=disk, clock=SystemClock(), settings=settings)
        except MetadataError as error:
            raise CannotStart(f"The metadata store {url} does not answer: {error}") from error
        try:
            yield store
        finally:
            await store.close()
    finally:
        await disk.close()


def _place_of(url: str, *, must_exist: bool) -> tuple[Path, str]:
    """Where the disk of a store begins, and the URL as seen from there."""
    scheme, _, rest = url.partition(":")
    if scheme != "embedded" or not rest:
        return Path("."), url
    directory = Path(rest).absolute()
    if must_exist and not directory.is_dir():
        raise BadSetting(f"There is no metadata store in {directory}")
    directory.parent.mkdir(parents=True, exist_ok=True)
    return directory.parent, f"embedded:{directory.name}"


async def _sequences(store: MetadataStore) -> list[str]:
    """Parents below which sequential names are made that must never come again."""
    long_ids = [f"{LONG_ID_GENERATOR}/{name}" for name in await store.children(LONG_ID_GENERATOR)]
    return [ID_GENERATOR, *long_ids, PRODUCER_NAMES]


def _lines_of(source: str) -> Callable[[], Iterator[bytes]]:
    def lines() -> Iterator[bytes]:
        with Path(source).open("rb") as file:
            while line := file.readline(LINE_BYTES_MAX + 1):
                if len(line) > LINE_BYTES_MAX:
                    raise BadSetting(f"{source} has a line of more than {LINE_BYTES_MAX} bytes: it is no export")
                yield line

    if not Path(source).is_file():
        raise BadSetting(f"There is no file {source}")
    return lines
