# SPDX-License-Identifier: Apache-2.0
"""What must hold after a soak, judged from its history and from what a fresh reader finds."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tests.faults.soak_load import History, Taken, key_of


def violations(history: History, found: Sequence[str]) -> list[str]:
    """One sentence for each broken promise."""
    stored = set(found)
    known = {name for names in history.sent.values() for name in names}
    broken = [f"{name} was acknowledged and is gone" for name in history.acknowledged if name not in stored]
    broken += [f"{name} is stored and was never sent" for name in sorted(stored - known)]
    broken += _keys_out_of_order("the topic", [Taken(name, key_of(name), "") for name in found], history)
    for subscription, taken in history.taken.items():
        got = {each.name for each in taken}
        broken += [f"{subscription} never got {name}" for name in history.acknowledged if name not in got]
        broken += [f"{subscription} got {name}, which was never sent" for name in sorted(got - known)]
        if subscription != "shared":
            broken += _keys_out_of_order(subscription, taken, history)
    return broken


def _keys_out_of_order(subscription: str, taken: Sequence[Taken], history: History) -> list[str]:
    """Whatever came again, first deliveries of one key keep the order in which it was sent."""
    by_key: dict[str, list[str]] = {}
    for each in taken:
        by_key.setdefault(each.key, []).append(each.name)
    broken: list[str] = []
    for key, names in by_key.items():
        sent = history.sent[key.rpartition("/")[0]]
        broken += _out_of_order(f"{subscription}, key {key}", names, sent)
    return broken


def _out_of_order(where: str, names: Iterable[str], sent: Sequence[str]) -> list[str]:
    firsts = list(dict.fromkeys(names))
    numbers = [int(name.rpartition(":")[2]) for name in firsts]
    for before, after in pairwise(numbers):
        if after < before:
            return [f"{where}: {sent[after]} came first after {sent[before]}"]
    return []
