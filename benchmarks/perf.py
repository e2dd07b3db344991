# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.perf`: load from the command line with pulsar-perf's flags, against any Pulsar broker.

    python -m benchmarks.perf produce|consume|latency TOPIC… [--client raw|official|own] [-r RATE] [-s BYTES] … | --help

The generator is the one of `python -m benchmarks`: frames that were built beforehand (raw), the official Python client,
or ours. With a rate latency counts from the moment that each message was due, whatever was answered by then; without
one the loop is closed, and counts from when each was sent.
"""

import sys
from collections.abc import Sequence

import pulsar

from benchmarks import perf_clients, perf_raw
from benchmarks.perf_work import OUTSTANDING, Report, Work
from magnetar.cli import exits
from magnetar.cli.perf import topics_of
from magnetar.cli.perf_commands import COMMON, CONSUME, PRODUCE
from magnetar.cli.values import WrongUse
from magnetar.cli.words import Command, Flag, Given, Kind, flag
from magnetar.names import TopicName

URL = "pulsar://127.0.0.1:6650"
SIZE_MIN = 8


def _of(flags: Sequence[Flag], *names: str) -> tuple[Flag, ...]:
    """Flags that are pulsar-perf's, and mean here what they mean there."""
    return tuple(next(each for each in flags if name in each.names) for name in names)


_RATE = flag("--rate -r", Kind.DECIMAL, "Messages a second over all topics. Without: a closed loop.", default=0.0)
_BATCH = flag("--batch-max-messages -bm --batch", Kind.NUMBER, "Messages in a batch; 1: none.", default=1)
_LINES = flag("--stats-interval-seconds -i", Kind.NUMBER, "Seconds between two lines of figures.", default=1)
_SENT = (_RATE, _BATCH, *_of(PRODUCE.flags, "-s", "-n", "-o", "-m", "-b", "-db", "--separator"))
_SHARED = (
    flag("--client", Kind.TEXT, "Who makes the load.", default="raw", choices="raw official own"),
    _LINES,
    *_of(COMMON, "-u", "-c", "-t", "-time"),
)
# Without pulsar-perf's third name for it, -s, which is the size of a message.
_NAME = flag("--subscriptions -ss", Kind.TEXT, "Name of the subscription.", default="sub")
_GROUP = (_NAME, *_of(CONSUME.flags, "-st", "-q"))
COMMANDS = {
    each.name: each
    for each in (
        Command("produce", "Publish; latency ends with the receipt.", ("topics…",), _SENT),
        Command("consume", "Receive and acknowledge.", ("topics…",), (*_of(CONSUME.flags, "-n", "-sp", "-m"), *_GROUP)),
        Command(
            "latency",
            "Publish at a rate and receive; latency ends with the receipt, and with the message.",
            ("topics…",),
            (*_SENT, *_GROUP, flag("--num-consumers -nc", Kind.NUMBER, "Consumers of each topic.", default=1)),
        ),
    )
}


def work_of(command: str, given: Given) -> Work:
    """WrongUse when what was typed makes no load."""
    counts = [given.get("num_producers", 1), given.get("num_consumers", 1), given["max_connections"]]
    if min(*counts, given.get("batch_max_messages", 1), given["num_topics"]) < 1:
        raise WrongUse("producers, consumers, connections, topics and messages in a batch should be at least 1")
    if given.get("size", SIZE_MIN) < SIZE_MIN:
        raise WrongUse(f"--size should be at least {SIZE_MIN}: a message carries its number or its time")
    if command == "latency" and not given["rate"]:
        raise WrongUse("latency needs --rate: without one no message is due at any time")
    if given["client"] == "official" and given["max_connections"] > 1:
        raise WrongUse("the official Python client has one connection; use --client raw or own with -c")
    return Work(
        service_url=given["service_url"] or URL,
        topics=tuple(str(TopicName.parse(name)) for name in topics_of(given)),
        rate=given.get("rate", 0.0),
        size=given.get("size", 0),
        batch=1 if given.get("disable_batching") else given.get("batch_max_messages", 1),
        batch_ms=given.get("batch_time_window", 1.0),
        producers=given.get("num_producers", 1),
        consumers=given.get("num_consumers", 1),
        connections=given["max_connections"],
        outstanding=given.get("max_outstanding") or OUTSTANDING,
        messages=max(0, given["num_messages"]),
        seconds=max(0, given["test_duration"]),
        kind=given.get("subscription_type", "Exclusive"),
        subscription=given.get("subscriptions", "sub"),
        queue=given.get("receiver_queue_size", 1_000),
        earliest=given.get("subscription_position") == "Earliest",
    )


def words_of(command: str, work: Work, client: str) -> str:
    """What the figures mean."""
    if command == "consume":
        return "no latency: raw frames are not looked into" if client == "raw" else "latency from each publish time"
    if work.rate:
        unit = "batch of raw frames" if client == "raw" and work.batch > 1 else "message"
        return f"open loop: {work.rate:,g} messages a second, latency from when each {unit} was due"
    which = "every 64th entry" if client == "raw" else "each message"
    return (
        f"closed loop: {work.outstanding:,} messages in flight for each producer, latency of {which} from its sending"
    )


def main(words: Sequence[str]) -> int:
    return exits.ended(lambda: _main(list(words)))


def _main(words: list[str]) -> int:
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        if words and words[0] not in ("--help", "-h"):
            raise WrongUse(f"{words[0]!r} is no command; there are {', '.join(COMMANDS)}")
        print(__doc__, *(f"  {each.name:8}  {each.help}" for each in COMMANDS.values()), sep="\n")
        return exits.OK
    if {"--help", "-h"} & set(words[1:]):
        print(command.help_text(f"python -m benchmarks.perf {command.name}", more=_SHARED))
        return exits.OK
    given = command.read(words[1:], more=_SHARED)
    work, client = work_of(command.name, given), given["client"]
    print(words_of(command.name, work, client), flush=True)
    report = Report(work, max(1, given["stats_interval_seconds"]))
    code = exits.OK
    try:
        _load(command.name, client, work, report)
    except KeyboardInterrupt:
        code = exits.INTERRUPTED
    except (OSError, pulsar.PulsarException) as error:
        code = exits.REFUSED
        print(f"the load ended early: {error}", file=sys.stderr)
    report.show()
    return exits.REFUSED if report.failures else code


def _load(command: str, client: str, work: Work, report: Report) -> None:
    if client == "raw":
        if command == "consume":
            perf_raw.consume(work, report)
        else:
            perf_raw.publish(work, report, consumed=command == "latency")
        return
    side = perf_clients.SIDES[client]()
    if command == "consume":
        perf_clients.consume(work, report, side)
    else:
        perf_clients.publish(work, report, side, consumed=command == "latency")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
