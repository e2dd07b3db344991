# SPDX-License-Identifier: Apache-2.0
"""The plan of a cluster on one machine: which processes there are, on which ports, started with which words.

A plan only grows: members are added, never removed, because bookies hold data. It is kept as JSON with a version.
Decides.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from magnetar.errors import BadSetting, DamagedRecord

VERSION: Final = 2
# What a plan without a newer role is written as, so that an older Magnetar reads it.
_FIRST_VERSION: Final = 1
METADATA: Final = "metadata"
BOOKIE: Final = "bookie"
AUTORECOVERY: Final = "autorecovery"
BROKER: Final = "broker"
PROXY: Final = "proxy"
# In the order of starting; stopping goes the other way.
ROLES: Final = (METADATA, BOOKIE, AUTORECOVERY, BROKER, PROXY)
_ONE_PORT: Final = (METADATA, AUTORECOVERY)
MEMBERS_MAX: Final = 100
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Member:
    """One process. `port` is the one that clients of this role use; `http_port` is 0 where there is none."""

    name: str
    role: str
    port: int
    http_port: int = 0
    pid: int = 0
    # What tells this process from a later one with the same number; empty when it never ran.
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    metadata_url: str
    members: tuple[Member, ...] = ()
    configs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def member(self, name: str) -> Member:
        for member in self.members:
            if member.name == name:
                return member
        raise BadSetting(f"There is no {name} here; there are {', '.join(each.name for each in self.members)}")

    def of_role(self, role: str) -> list[Member]:
        return [member for member in self.members if member.role == role]

    def replaced(self, changed: Member) -> "Plan":
        """The same plan with a newer state of one member."""
        return replace(self, members=tuple(changed if m.name == changed.name else m for m in self.members))

    @property
    def service_url(self) -> str:
        """Where clients connect: the proxies if there are any, else every broker."""
        doors = self.of_role(PROXY) or self.of_role(BROKER)
        return "pulsar://" + ",".join(f"{HOST}:{member.port}" for member in doors)

    @property
    def admin_url(self) -> str:
        doors = self.of_role(PROXY) or self.of_role(BROKER)
        return f"http://{HOST}:{doors[0].http_port}" if doors else ""


def grown(plan: Plan, wanted: Mapping[str, int], free_ports: Callable[[], int]) -> Plan:
    """The plan with as many members of each role as wanted. BadSetting when it would have to shrink."""
    if sum(wanted.values()) > MEMBERS_MAX:
        raise BadSetting(f"{sum(wanted.values())} processes are too many for one machine; at most {MEMBERS_MAX}")
    members = list(plan.members)
    for role in ROLES:
        have = len(plan.of_role(role))
        if wanted.get(role, have) < have:
            raise BadSetting(
                f"This cluster has {have} of role {role}, and a cluster does not shrink by itself; "
                f"ask for {have} or more, or choose another --data-dir"
            )
        for number in range(have + 1, wanted.get(role, have) + 1):
            name = METADATA if role == METADATA else f"{role}-{number}"
            members.append(Member(name, role, free_ports(), 0 if role in _ONE_PORT else free_ports()))
    return replace(plan, members=tuple(members))


def words(plan: Plan, member: Member, directory: str, ready_file: str) -> list[str]:
    """The command line of a member, after `magnetar`."""
    own = ["--data-dir", directory, "--ready-file", ready_file]
    if member.role == METADATA:
        return ["metadata", "serve", "--port", str(member.port), *own]
    ports = ["--port", str(member.port), "--http-port", str(member.http_port)]
    if member.role == AUTORECOVERY:
        ports = ["--http-port", str(member.port)]
    configs = [word for name in plan.configs.get(member.role, ()) for word in ("--config", name)]
    if member.role == PROXY:
        own = ["--ready-file", ready_file]
    return [member.role, "--metadata", plan.metadata_url, *ports, *configs, *own]


def environment(plan: Plan, member: Member) -> dict[str, str]:
    """What a member is told beside its flags: the cluster's name, and no more copies than there are bookies."""
    told = {"MAGNETAR_CLUSTER_NAME": plan.name}
    copies = min(2, len(plan.of_role(BOOKIE)))
    if member.role == BROKER and copies < 2:
        for key in ("ENSEMBLE_SIZE", "WRITE_QUORUM", "ACK_QUORUM"):
            told[f"MAGNETAR_MANAGED_LEDGER_DEFAULT_{key}"] = str(copies)
    return told


def encode(plan: Plan) -> str:
    return json.dumps(
        {
            "version": VERSION if plan.of_role(AUTORECOVERY) else _FIRST_VERSION,
            "name": plan.name,
            "metadataUrl": plan.metadata_url,
            "configs": {role: list(files) for role, files in plan.configs.items()},
            "members": [
                {
                    "name": each.name,
                    "role": each.role,
                    "port": each.port,
                    "httpPort": each.http_port,
                    "pid": each.pid,
                    "incarnation": each.incarnation,
                }
                for each in plan.members
            ],
        },
        indent=2,
    )


def decode(text: str, where: str) -> Plan:
    """The plan that `encode` wrote. BadSetting for a newer version, DamagedRecord for anything else."""
    try:
        found = json.loads(text)
        version = found["version"]
        if isinstance(version, int) and version > VERSION:
            raise BadSetting(f"{where} was written by a newer Magnetar (version {version}, this one knows {VERSION})")
        return Plan(
            found["name"],
            found["metadataUrl"],
            tuple(_members(found["members"])),
            {role: tuple(files) for role, files in found["configs"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedRecord(f"{where} does not describe a cluster: {error!r}") from error


def _members(found: list[dict[str, Any]]) -> Iterator[Member]:
    for each in found:
        if each["role"] not in ROLES:
            raise ValueError(f"role {each['role']!r}")
        yield Member(
            str(each["name"]),
            each["role"],
            int(each["port"]),
            int(each["httpPort"]),
            int(each["pid"]),
            str(each["incarnation"]),
        )
