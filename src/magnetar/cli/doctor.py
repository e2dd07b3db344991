# SPDX-License-Identifier: Apache-2.0
"""`magnetar doctor`: is this machine, this configuration and this cluster well, and what to do where it is not.

Reads and measures only; the one file it writes is a probe in --data-dir, which it deletes. Exit code 1 when something
is broken; a warning alone is no failure.
Carries.
"""

import asyncio
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from magnetar.cli import exits
from magnetar.cli.http import HttpApi
from magnetar.cli.output import show
from magnetar.cli.own_command import run_own, with_api
from magnetar.cli.words import Command, Kind, flag
from magnetar.errors import BadSetting, MagnetarError
from magnetar.runtime.clock import SystemClock

OPEN_FILES_MIN: Final = 65_536
FREE_DISK_PERCENT_MIN: Final = 10.0
FSYNC_MS_MAX: Final = 20.0
FSYNCS: Final = 20
PROBE_BYTES: Final = 4096
LOOP_LAG_MS_MAX: Final = 100.0

COMMAND: Final = Command(
    "doctor",
    "Check this machine, a configuration and a cluster; say what to do about what is wrong.",
    (),
    (
        flag("--data-dir", Kind.TEXT, "Check the disk that this directory is on, too."),
        flag("--broker-config", Kind.TEXTS, "Check these configuration files, too."),
        flag("--offline", Kind.SWITCH, "Do not ask a cluster."),
    ),
)


class Health(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


class Finding(NamedTuple):
    health: Health
    what: str
    advice: str = ""


def run_doctor(words: Sequence[str]) -> int:
    return run_own(COMMAND, words, lambda given: with_api(given, lambda api: _doctor(api, given)))


def _doctor(api: HttpApi, given: dict[str, Any]) -> int:
    findings = [*_machine(given["data_dir"]), *_configuration(given["broker_config"] or [])]
    if not given["offline"]:
        findings += _cluster(api)
    if given["json"]:
        show([finding._asdict() for finding in findings], as_json=True)
    else:
        for finding in findings:
            advice = f" -- {finding.advice}" if finding.advice else ""
            sys.stdout.write(f"{finding.health.value:8} {finding.what}{advice}\n")
    return exits.REFUSED if any(each.health is Health.BROKEN for each in findings) else exits.OK


# --- this machine --------------------------------------------------------------------------------


def _machine(data_dir: str | None) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding(Health.OK, f"Python {version}, {os.cpu_count()} processors")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES_MIN:
        advice = f"every connection and ledger needs one: ulimit -n {OPEN_FILES_MIN} (the limit here is {hard})"
        yield Finding(Health.WARNING, f"{soft} open files are allowed", advice)
    else:
        yield Finding(Health.OK, f"{soft} open files are allowed")
    if data_dir is not None:
        yield from _disk(data_dir)


def _disk(data_dir: str) -> Iterator[Finding]:
    place = Path(data_dir)
    while not place.exists() and place != place.parent:
        place = place.parent
    usage = shutil.disk_usage(place)
    free = usage.free * 100 / usage.total
    health = Health.OK if free >= FREE_DISK_PERCENT_MIN else Health.WARNING
    advice = "" if health is Health.OK else "a bookie stops taking entries at 95% used; add disk or shorten retention"
    yield Finding(health, f"{free:.0f}% of the disk of {data_dir} is free", advice)
    try:
        millis = asyncio.run(_fsync_ms(place))
    except (OSError, MagnetarError) as error:
        yield Finding(Health.BROKEN, f"{place} cannot be written: {error}", "choose another --data-dir")
        return
    health = Health.OK if millis <= FSYNC_MS_MAX else Health.WARNING
    advice = "" if health is Health.OK else "every confirmed message waits for this; a faster disk helps most"
    yield Finding(health, f"an fsync there takes {millis:.1f} ms at the median", advice)


async def _fsync_ms(place: Path) -> float:
    """The median of a few; the probe is deleted again."""
    from magnetar.runtime.real_disk import RealDisk

    clock = SystemClock()
    disk = RealDisk(str(place))
    name = f".magnetar-doctor-{os.getpid()}"
    times = []
    try:
        file = await disk.open(name, create=True)
        try:
            for place_in_file in range(FSYNCS):
                await file.write(place_in_file * PROBE_BYTES, [bytes(PROBE_BYTES)])
                before_s = clock.elapsed_s()
                await file.sync()
                times.append(clock.elapsed_s() - before_s)
        finally:
            await file.close()
            await disk.remove(name)
    finally:
        await disk.close()
    return sorted(times)[len(times) // 2] * 1000


# --- a configuration -----------------------------------------------------------------------------


def _configuration(files: list[str]) -> Iterator[Finding]:
    if not files:
        return
    from magnetar.config.load import NoticeLevel, SettingsFile, load_settings

    try:
        texts = [SettingsFile(name, Path(name).read_text(encoding="utf-8")) for name in files]
        settings = load_settings(texts, {}, {})
    except (OSError, UnicodeDecodeError, BadSetting) as error:
        yield Finding(Health.BROKEN, f"The configuration cannot be used: {error}", "a broker would not start with it")
        return
    for notice in settings.notices:
        if notice.level is NoticeLevel.WARNING:
            yield Finding(Health.WARNING, notice.text)
    yield Finding(Health.OK, f"{', '.join(files)} can be used")


# --- a cluster -----------------------------------------------------------------------------------


def _cluster(api: HttpApi) -> Iterator[Finding]:
    try:
        version = api.get("/admin/v2/brokers/version")
    except MagnetarError as error:
        yield Finding(Health.BROKEN, str(error), "start a broker, or say where it is with --admin-url")
        return
    yield Finding(Health.OK, f"{api.url} answers, version {version}")
    for what, check in _CHECKS.items():
        try:
            yield from check(api)
        except MagnetarError as error:
            yield Finding(Health.WARNING, f"{what} could not be checked: {error}", "ask as a super user")


def _health(api: HttpApi) -> Iterator[Finding]:
    try:
        api.get("/admin/v2/brokers/health")
    except MagnetarError as error:
        yield Finding(
            Health.BROKEN, f"A broker cannot write and read a message: {error}", "look at bookies and its log"
        )
        return
    yield Finding(Health.OK, "A message was written and read")


def _brokers(api: HttpApi) -> Iterator[Finding]:
    cluster = api.get("/admin/v2/brokers/configuration/runtime").get("clusterName", "standalone")
    brokers = api.get(f"/admin/v2/brokers/{cluster}")
    leader = api.get("/admin/v2/brokers/leaderBroker")
    name = leader.get("brokerId") or leader.get("serviceUrl") if isinstance(leader, dict) else leader
    yield Finding(Health.OK, f"{len(brokers)} brokers in cluster {cluster}; {name} leads")


def _topics(api: HttpApi) -> Iterator[Finding]:
    from magnetar.cli.top_rows import row_of, topics_in

    rows = [row_of(name, stats, None, 0) for name, stats in topics_in(api.get("/admin/v2/broker-stats/topics")).items()]
    waiting = [row for row in rows if row.backlog and not row.consumers]
    yield Finding(Health.OK, f"{len(rows)} topics are loaded by this broker")
    if waiting:
        first = max(waiting, key=lambda row: row.backlog)
        advice = "nobody reads them: magnetar explain, or delete the subscription, or set a message TTL"
        yield Finding(
            Health.WARNING, f"{len(waiting)} topics have a backlog and no consumer, {first.topic} the largest", advice
        )


def _loop(api: HttpApi) -> Iterator[Finding]:
    text = api.get("/metrics")
    buckets: list[tuple[float, float]] = []
    for line in str(text).splitlines():
        if line.startswith("magnetar_loop_lag_seconds_bucket"):
            bound = line.partition('le="')[2].partition('"')[0]
            buckets.append((float(bound.replace("+Inf", "inf")), float(line.rpartition(" ")[2])))
    if not buckets or not buckets[-1][1]:
        return
    lag_ms = next(bound for bound, count in buckets if count >= buckets[-1][1] * 0.99) * 1000
    health = Health.OK if lag_ms <= LOOP_LAG_MS_MAX else Health.WARNING
    advice = (
        "" if health is Health.OK else "the broker has more to do than one processor can: move bundles, add brokers"
    )
    yield Finding(health, f"99% of the broker's turns start within {lag_ms:g} ms", advice)


_CHECKS: Final[dict[str, Callable[[HttpApi], Iterator[Finding]]]] = {
    "The health of the broker": _health,
    "Which brokers there are": _brokers,
    "The topics": _topics,
    "The broker's event loop": _loop,
}
