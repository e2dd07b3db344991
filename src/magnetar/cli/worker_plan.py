# SPDX-License-Identifier: Apache-2.0
"""Who the workers of one machine are: their names and ports, what each is started with, and what it is told.

Ports are kept: a worker that comes back at its former address takes its bundles up again without waiting for a session.
Decides.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from magnetar.errors import BadSetting

VERSION: Final = 1
PORTS_EACH: Final = 4
WORKERS_MAX: Final = 256
_PORT_MAX: Final = 65_535


class Ports(NamedTuple):
    """Of one process, or those that all share. -1 is none."""

    clients: int
    http: int
    clients_tls: int = -1
    https: int = -1


class Charge(NamedTuple):
    """What a worker is told by its supervisor."""

    name: str
    # The role whose settings it heeds.
    role: str
    shared: Ports
    own: Ports


class Worker(NamedTuple):
    name: str
    command: tuple[str, ...]
    data_dir: str
    ready_file: str


def encode_charge(charge: Charge) -> str:
    return json.dumps(charge._asdict())


def decode_charge(text: str) -> Charge:
    """What `encode_charge` wrote. BadSetting for anything else."""
    try:
        found = json.loads(text)
        return Charge(**{**found, "shared": Ports(*found["shared"]), "own": Ports(*found["own"])})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadSetting(f"--worker is for `--workers` itself to use: {error!r}") from error


def own_ports(
    count: int, first: int | None, kept: Sequence[Ports], is_free: Callable[[int], bool], fresh: Callable[[], int]
) -> list[Ports]:
    """Each worker's own: from a first one on, or those it had, or free ones."""
    if count > WORKERS_MAX:
        raise BadSetting(f"{count} workers are too many for one machine; at most {WORKERS_MAX}")
    if first is not None:
        if not 0 < first <= _PORT_MAX + 1 - count * PORTS_EACH:
            raise BadSetting(f"--worker-port {first}: each worker takes {PORTS_EACH} ports from there on")
        return [
            Ports(*range(start, start + PORTS_EACH)) for start in range(first, first + count * PORTS_EACH, PORTS_EACH)
        ]
    taken: dict[int, None] = {}
    chosen = []
    for number in range(count):
        wanted: Sequence[int] = kept[number] if number < len(kept) else (0,) * PORTS_EACH
        ports = []
        for port in wanted:
            while port <= 0 or port in taken or not is_free(port):
                port = fresh()
            taken[port] = None
            ports.append(port)
        chosen.append(Ports(*ports))
    return chosen


def encode_ports(ports: Sequence[Ports]) -> bytes:
    return json.dumps({"version": VERSION, "workers": [list(each) for each in ports]}).encode()


def decode_ports(value: bytes) -> list[Ports]:
    """None when the record cannot be read: other ports do as well."""
    try:
        found = json.loads(value)
        if found["version"] != VERSION:
            return []
        ports = [Ports(*(int(port) for port in each)) for each in found["workers"]]
        return ports if all(min(each) > 0 for each in ports) else []
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
