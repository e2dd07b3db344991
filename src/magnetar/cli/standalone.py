# SPDX-License-Identifier: Apache-2.0
"""`magnetar standalone`: reads flags and files, runs everything in one process, says where it serves.

Assembles.
"""

import errno
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.cli.exposure import check_exposure
from magnetar.cli.machine import describe_memory
from magnetar.config.load import NoticeLevel, Settings, SettingsFile, load_settings
from magnetar.errors import BadSetting, CannotStart, DataDirectoryInUse, DiskFull
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.real_disk import RealDisk
from magnetar.standalone.door_ports import DoorPorts
from magnetar.standalone.standalone import Standalone

INDEX_THREADS: Final = 2
MARKER: Final = "magnetar-standalone"
REASONS: Final = {
    errno.EACCES: "there is no permission to write in it",
    errno.EROFS: "it is on a read-only file system",
    errno.ENOSPC: "no space is left there",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EEXIST: "it is a file",
}


class StandaloneFlags(NamedTuple):
    data_dir: str
    bind: str | None = None
    port: str | None = None
    http_port: str | None = None
    config: tuple[str, ...] = ()
    ready_file: str | None = None
    wipe: bool = False
    json: bool = False
    production: bool = False
    bookie_port: int | None = None
    metadata_port: int | None = None
    workers: int | None = None
    worker_port: int | None = None


def run_standalone(flags: StandaloneFlags) -> int:
    """Serve until told to stop; returns the exit code."""
    if flags.workers is not None:
        return _run_workers(flags, flags.workers)
    settings = _settings(flags)
    start_logging(settings.runtime, sys.stderr)
    _prepare_directory(Path(flags.data_dir), flags.wipe)

    async def serve(process: Process) -> None:
        disk = RealDisk(flags.data_dir)
        calls = BlockingCalls(INDEX_THREADS, name="index")
        try:
            standalone = await Standalone.open(
                disk,
                settings,
                clock=SystemClock(),
                random=stream(fresh_seed(), "standalone"),
                on_failed=lambda error: process.fail("standalone", error),
                metrics=process.metrics,
                index_factory=lambda directory: RocksLedgerIndex.open(
                    str(Path(flags.data_dir) / directory), calls, settings.bookie
                ),
                doors=DoorPorts(flags.bookie_port, flags.metadata_port),
            )
            try:
                service_url = await standalone.start()
                describe_memory(settings, brokers=True, bookies=True)
                _announce(flags, settings, service_url, standalone.web_url, standalone.doors)
                standalone.broker.stop_process = process.stop
                process.serving()
                await process.stop_requested()
            finally:
                await standalone.stop()
        except OSError as error:
            raise _cannot_use(flags.data_dir, error) from error
        except DataDirectoryInUse as error:
            raise CannotStart(f"{str(error).rstrip('.')} with --data-dir") from error
        except CannotStart as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in REASONS:
                raise _cannot_use(flags.data_dir, error.__cause__) from error
            raise
        except DiskFull as error:
            raise _cannot_use(flags.data_dir, OSError(errno.ENOSPC, str(error))) from error
        finally:
            await calls.close()
            await disk.close()

    return run(serve, settings.runtime)


def _run_workers(flags: StandaloneFlags, count: int) -> int:
    from magnetar.cli.role import RoleFlags
    from magnetar.cli.workers import WorkerFlags, run_standalone_workers

    _prepare_directory(Path(flags.data_dir), flags.wipe)
    try:
        return run_standalone_workers(
            RoleFlags(flags.data_dir, None, flags.config, flags.ready_file, flags.json),
            _given(flags),
            WorkerFlags(count, flags.worker_port),
            DoorPorts(flags.bookie_port, flags.metadata_port),
        )
    except OSError as error:
        raise _cannot_use(flags.data_dir, error) from error


def _given(flags: StandaloneFlags) -> dict[str, str | None]:
    given = {"--bind": flags.bind, "--port": flags.port, "--http-port": flags.http_port}
    if flags.production:
        given["security.production"] = "true"
    return given


def _settings(flags: StandaloneFlags) -> Settings:
    given = _given(flags)
    if flags.json:
        given["runtime.log_format"] = "json"
    files = [SettingsFile(name, _read(name)) for name in flags.config]
    settings = load_settings(files, os.environ, {name: text for name, text in given.items() if text is not None})
    for notice in settings.notices:
        if notice.level is NoticeLevel.WARNING:
            sys.stderr.write(f"magnetar: warning: {notice.text}\n")
    check_exposure(settings, sys.stderr.write)
    return settings


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"The file {name} given with --config cannot be read: {error}") from error


def _prepare_directory(directory: Path, wipe: bool) -> None:
    """Make the data directory, or empty it; only a directory that a standalone made is ever emptied."""
    try:
        if wipe and directory.exists() and any(directory.iterdir()):
            if not (directory / MARKER).exists():
                raise CannotStart(f"{directory} was not made by Magnetar and is not wiped; choose another --data-dir")
            shutil.rmtree(directory)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / MARKER).touch()
    except OSError as error:
        raise _cannot_use(str(directory), error) from error


def _cannot_use(directory: str, error: OSError) -> CannotStart:
    reason = REASONS.get(error.errno or 0, error.strerror or str(error))
    return CannotStart(f"The data directory {directory} cannot be used: {reason}; choose another with --data-dir")


def _announce(
    flags: StandaloneFlags, settings: Settings, service_url: str, web_url: str, doors: dict[str, str]
) -> None:
    directory = os.path.abspath(flags.data_dir)
    sys.stdout.write(
        f"Magnetar standalone serves cluster '{settings.broker.cluster_name}'\n"
        f"  clients         {service_url}\n"
        f"  administration  {web_url}\n"
        + "".join(f"  {name:<14}  {url}\n" for name, url in doors.items())
        + f"  data directory  {directory}\n"
        f"  stop            Ctrl-C, or SIGTERM to process {os.getpid()}\n"
    )
    sys.stdout.flush()
    if flags.ready_file:
        ready = {"serviceUrl": service_url, "webServiceUrl": web_url, "dataDirectory": directory, "pid": os.getpid()}
        ready |= {f"{name}Url": url for name, url in doors.items()}
        target = Path(flags.ready_file)
        partial = target.with_name(target.name + ".partial")
        partial.write_text(json.dumps(ready))
        partial.replace(target)
