# SPDX-License-Identifier: Apache-2.0
"""`magnetar perf`: load from the command line, with pulsar-perf's flags.

Messages are sent by a schedule and their latency counts from when they were due; see pace.py. One process is one
event loop: for more load start more of them.
Carries.
"""

import sys
from collections.abc import Sequence
from typing import Final

from magnetar.cli import exits
from magnetar.cli.access import access_of
from magnetar.cli.perf_commands import COMMANDS, COMMON, TRANSACTION
from magnetar.cli.values import WrongUse
from magnetar.cli.words import Given

_NO_TOPIC: Final = "give the topic, or several"


def run_perf(words: Sequence[str], program: str = "magnetar perf") -> int:
    return exits.ended(lambda: _run(list(words), program))


def _run(words: list[str], program: str) -> int:
    if not words or words[0] in ("--help", "-h"):
        lines = [f"Usage: {program} COMMAND …", ""]
        lines += [f"  {each.name:11}  {each.help}" for each in COMMANDS.values()]
        sys.stdout.write("\n".join(lines) + "\n")
        return exits.OK
    command = COMMANDS.get(words[0])
    if command is None:
        raise WrongUse(f"{words[0]!r} is no command; there are {', '.join(COMMANDS)}")
    if {"--help", "-h"} & set(words[1:]):
        sys.stdout.write(command.help_text(f"{program} {command.name}", more=COMMON))
        return exits.OK
    given = command.read(words[1:], more=COMMON)
    topics = [*given["topics_c"], *given["topics_p"]] if command is TRANSACTION else topics_of(given)
    from magnetar.cli.looping import run_with_client

    access = access_of(
        {**given, "url": given["service_url"], "tls_trust_cert_path": given["trust_cert_file"], "admin_url": None}
    )
    if given.get("partitions"):
        _make_partitioned(given, topics)
    from magnetar.cli.perf_work import load_test

    return run_with_client(
        access,
        lambda client: load_test(client, given, command.name, topics),
        connections_per_broker=given["max_connections"],
        memory_limit_bytes=given["memory_limit"],
        concurrent_lookup_requests=given["max_lookup_request"],
    )


def topics_of(given: Given) -> list[str]:
    """The topics: as many names as there should be, or one name with numbers."""
    names, count = given["topics"], given["num_topics"]
    if not names:
        raise WrongUse(_NO_TOPIC)
    if len(names) == count or count == 1:
        return list(names)
    if len(names) != 1:
        raise WrongUse(f"--num-topics {count} does not fit {len(names)} topics")
    return [f"{names[0]}{given.get('separator', '-')}{number}" for number in range(count)]


def _make_partitioned(given: Given, topics: list[str]) -> None:
    from magnetar.cli.http import AdminRefusal, HttpApi
    from magnetar.cli.verbs.verb import TOPIC, request, value

    api = HttpApi(access_of({**given, "url": given["service_url"], "tls_trust_cert_path": given["trust_cert_file"]}))
    for topic in topics:
        try:
            api.ask(request("PUT", TOPIC + "/partitions", {**given, "topic": topic}, body=value("partitions")))
        except AdminRefusal as refusal:
            if refusal.status != 409:
                raise
    api.close()
