# SPDX-License-Identifier: Apache-2.0
"""Commands of the storage shell for the directories of a bookie that does not run, and for cookies as files.

Assembles.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from magnetar.bookie.ledger_index import LedgerIndex
from magnetar.bookie.offline import check_directories, rebuild_indexes
from magnetar.bookie.opening import IndexFactory
from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.cli.bookkeeper_shell import Shell
from magnetar.cli.role import RoleFlags, role_settings
from magnetar.config.bookie import BookieSettings
from magnetar.config.key import BOOKIE
from magnetar.errors import BookieUnavailable, CannotStart
from magnetar.ledger.paths import COOKIES, INSTANCE_ID
from magnetar.metadata.store import MUST_NOT_EXIST
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.disk import Disk
from magnetar.runtime.real_disk import RealDisk
from magnetar.wire.bookkeeper import cookie
from magnetar.wire.bookkeeper.cookie import Cookie

Say = Callable[[str], None]
Result = TypeVar("Result")


def rebuild(data_dir: str, config: tuple[str, ...], say: Say) -> None:
    for path, entries in _on_directories(data_dir, config, rebuild_indexes).items():
        what = f"{entries} records were read, and their entries are in the new index"
        say(f"{path}: {what}; its ledgers are in limbo until they are recovered")


def consistency_check(data_dir: str, config: tuple[str, ...], say: Say) -> bool:
    """True when every entry that an index names can be read."""
    checked, damaged = _on_directories(data_dir, config, check_directories)
    for entry in damaged:
        say(f"ledger {entry.ledger_id} entry {entry.entry_id}: {entry.reason}")
    say(f"=== {'Local consistency check passed' if not damaged else 'Found errors'}: {checked} entries read ===")
    return not damaged


def _on_directories(
    data_dir: str,
    config: tuple[str, ...],
    work: Callable[[Disk, BookieSettings, IndexFactory], Awaitable[Result]],
) -> Result:
    settings = role_settings(RoleFlags(data_dir, config=config), BOOKIE, {}).bookie

    async def main() -> Result:
        disk = RealDisk(data_dir)
        calls = BlockingCalls(1, name="index")

        async def index_in(directory: str) -> LedgerIndex:
            return await RocksLedgerIndex.open(str(Path(data_dir) / directory), calls)

        try:
            return await work(disk, settings, index_in)
        except OSError as error:
            raise CannotStart(f"{data_dir} cannot be used: {error}") from error
        finally:
            await calls.close()
            await disk.close()

    return asyncio.run(main())


# --- cookies ----------------------------------------------------------------------------------


async def cookie_generate(
    shell: Shell, bookie: str, journals: tuple[str, ...], ledgers: tuple[str, ...], output: str
) -> None:
    """Write the cookie that a bookie with these directories has in this cluster."""
    record = await shell.store.get(INSTANCE_ID)
    made = Cookie(bookie, journals, ledgers, record.value.decode() if record is not None else None)
    target = Path(output)
    disk = RealDisk(str(target.parent))
    try:
        await disk.replace_file(target.name, cookie.encode(made))
    finally:
        await disk.close()
    shell.say(f"The cookie of {bookie} is in {output}.")


async def cookie_create(shell: Shell, bookie: str, file: str) -> None:
    data = await _cookie_in(file)
    await shell.store.put(f"{COOKIES}/{bookie}", data, expected_version=MUST_NOT_EXIST)
    shell.say(f"The cookie of {bookie} is registered.")


async def cookie_update(shell: Shell, bookie: str, file: str) -> None:
    data = await _cookie_in(file)
    present = await shell.store.get(f"{COOKIES}/{bookie}")
    if present is None:
        raise BookieUnavailable(f"There is no cookie of {bookie} to update; cookie_create makes one.")
    await shell.store.put(f"{COOKIES}/{bookie}", data, expected_version=present.version)
    shell.say(f"The cookie of {bookie} is replaced.")


async def _cookie_in(file: str) -> bytes:
    """The bytes of a file that is a cookie; DamagedRecord when it is none."""
    path = Path(file)
    disk = RealDisk(str(path.parent))
    try:
        data = await disk.read_file(path.name, bytes_max=64 * 1024)
    except OSError as error:
        raise CannotStart(f"The cookie file {file} cannot be read: {error.strerror}") from error
    finally:
        await disk.close()
    cookie.decode(data)
    return data
