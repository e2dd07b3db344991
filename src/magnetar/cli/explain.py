# SPDX-License-Identifier: Apache-2.0
"""`magnetar explain TOPIC [SUBSCRIPTION]`: why nothing is delivered now, in a sentence for each subscription.

The broker knows; this asks it, for every partition and every subscription unless one is named.
Carries.
"""

import sys
from collections.abc import Sequence
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.http import HttpApi
from magnetar.cli.output import show
from magnetar.cli.own_command import run_own, with_api
from magnetar.cli.verbs.verb import SUBSCRIPTION, TOPIC, request
from magnetar.cli.words import Command
from magnetar.names import TopicName

COMMAND: Final = Command(
    "explain",
    "Say why a topic's subscriptions deliver nothing now, or that nothing stands in the way.",
    ("topic", "subscription?"),
)


def run_explain(words: Sequence[str]) -> int:
    return run_own(COMMAND, words, lambda given: with_api(given, lambda api: _explain(api, given)))


def _explain(api: HttpApi, given: dict[str, Any]) -> int:
    found = []
    for topic in _partitions(api, given["topic"]):
        names = [given["subscription"]]
        if given["subscription"] is None:
            names = sorted(api.ask(request("GET", TOPIC + "/subscriptions", {"topic": topic})).value)
        for name in names:
            told = api.ask(request("GET", SUBSCRIPTION + "/explain", {"topic": topic, "subscription": name})).value
            found.append({"topic": topic, "subscription": name, **told})
    if given["json"]:
        show(found, as_json=True)
        return exits.OK
    if not found:
        sys.stdout.write(f"{given['topic']} has no subscription: what is published waits for nobody.\n")
    for each in found:
        where = f" ({each['messageId']})" if each["messageId"] else ""
        sys.stdout.write(f"{each['topic']} {each['subscription']}: {each['sentence']}{where}\n")
    return exits.OK


def _partitions(api: HttpApi, text: str) -> list[str]:
    topic = TopicName.parse(text)
    if topic.is_partition:
        return [str(topic)]
    count = api.ask(request("GET", TOPIC + "/partitions", {"topic": str(topic)})).value["partitions"]
    return [str(topic.partition(index)) for index in range(count)] if count else [str(topic)]
