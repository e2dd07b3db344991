# SPDX-License-Identifier: Apache-2.0
"""What must hold after a soak, judged from its history and from what a fresh reader finds in each topic.

Faults may make a message be stored or delivered again, and a consumer's queue outlives its connection. So every rule
says what of that is legal: with faults in sight it counts them, and in a calm window (no fault, nobody comes or goes)
it allows nothing for what was sent in that window.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from tests.faults.soak_history import (
    TOPIC,
    Disturbance,
    History,
    Kind,
    Subscription,
    Window,
    calm_windows,
    key_of,
    number_of,
    producer_of,
)

# What a fault has begun may end this much later: connections that are tried again, a ledger that is replaced.
_AFTERMATH_S = 60.0
# One fault may break a connection, and the topic's return may break it once more.
_BREAKS_MAX = 2
# A client sends its acknowledgements together, and the broker saves them every second; both may be late.
_SAVED_WITHIN_S = 5.0


def violations(history: History, found: Mapping[str, Sequence[str]]) -> list[str]:
    """One sentence for each broken promise."""
    windows = calm_windows(history.samples, history.disturbances)
    broken = [*_emptiness(history), *_unanswered(history), *_unsettled(history, windows)]
    copies: Counter[str] = Counter()
    for topic in sorted({sender.topic for sender in history.senders.values()} | set(found)):
        names = found.get(topic, ())
        copies.update(names)
        broken += _storage(topic, names, history)
        broken += _keys_out_of_order(topic, names)
    broken += _stored_again(history, copies, windows)
    for name, subscription in history.subscriptions.items():
        broken += _deliveries(name, subscription, history)
        broken += _delivered_again(name, subscription, history, copies)
        broken += _taken_in_vain(name, subscription, history, copies, windows)
        broken += _calm_deliveries(name, subscription, history, windows)
        if subscription.kind is not Kind.SHARED:
            broken += _keys_out_of_order(name, [each.name for each in subscription.taken])
    return broken


# --- the whole run ------------------------------------------------------------------------------


def _emptiness(history: History) -> Iterator[str]:
    """A soak in which nothing happened shows nothing."""
    if not history.senders or not history.subscriptions:
        yield "nobody produced, or nobody subscribed"
    answered = {producer_of(name) for name in history.acknowledged}
    for producer in history.senders.keys() - answered:
        yield f"{producer} never got a receipt"
    for name, subscription in history.subscriptions.items():
        takers = {each.consumer for each in subscription.taken}
        yield from (f"{each} of {name} never took anything" for each in subscription.consumers if each not in takers)


def _unanswered(history: History) -> Iterator[str]:
    """Producers never give up: at the end each message has its receipt."""
    open_ones = [name for name in history.sent_s if name not in history.acknowledged and name not in history.failed]
    if open_ones:
        yield f"{len(open_ones)} messages were sent and never answered, the first is {open_ones[0]}"
    for error, count in sorted(Counter(history.failed.values()).items()):
        yield f"{count} messages were given up: {error}"


def _unsettled(history: History, windows: Sequence[Window]) -> Iterator[str]:
    if not windows:
        yield "there was no calm at all: nothing says how consumers share when nobody is disturbed"
    for name, subscription in history.subscriptions.items():
        if subscription.backlog is None or subscription.backlog > 0:
            yield f"{name} still has a backlog at the end: {subscription.backlog}"
    for each in history.mishaps:
        if _window_of(each.at_s, windows) is not None:
            yield f"{each.who} was told in a calm window: {each.what}"
    for disturbance in history.disturbances:
        if disturbance.ended_s == float("inf"):
            yield f"{disturbance.kind} never ended"


def _storage(topic: str, names: Sequence[str], history: History) -> list[str]:
    stored = set(names)
    known = {name for sender in history.senders.values() if sender.topic == topic for name in sender.names}
    broken = [f"{name} was acknowledged and is gone" for name in history.acknowledged.keys() & known - stored]
    return broken + [f"{name} is stored in {topic} and was never sent there" for name in sorted(stored - known)]


def _stored_again(history: History, copies: Counter[str], windows: Sequence[Window]) -> Iterator[str]:
    """A message is stored again only when it was sent again: its producer was cut off while it was in flight."""
    for name, count in copies.items():
        if count == 1 or name not in history.sent_s:
            continue
        sent_s, answered_s = history.sent_s[name], history.acknowledged.get(name, float("inf"))
        window = _window_of(sent_s, windows)
        if history.senders[producer_of(name)].is_deduplicated:
            yield f"{name} is stored {count} times in spite of deduplication"
        elif window is not None and answered_s <= window.ended_s:
            yield f"{name} is stored {count} times, and was sent and answered in a calm window"
        elif count > 1 + _BREAKS_MAX * _faults_in_sight(sent_s, answered_s, history.disturbances):
            yield f"{name} is stored {count} times, and faults do not explain it"


# --- one subscription ---------------------------------------------------------------------------


def _deliveries(name: str, subscription: Subscription, history: History) -> list[str]:
    got = {each.name for each in subscription.taken}
    known = {each for sender in history.senders.values() if sender.topic == TOPIC for each in sender.names}
    broken = [f"{name} never got {each}" for each in history.acknowledged if each in known and each not in got]
    broken += [f"{name} got {each}, which was never sent" for each in sorted(got - known)]
    strangers = {each.consumer for each in subscription.taken} - set(subscription.consumers)
    return broken + [f"{name} was taken from by {each}, who is not of it" for each in sorted(strangers)]


def _delivered_again(name: str, subscription: Subscription, history: History, copies: Counter[str]) -> Iterator[str]:
    last_s: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for each in subscription.taken:
        counts[each.name] += 1
        last_s[each.name] = each.at_s
    for message, count in counts.items():
        stored = max(1, copies[message])
        if count <= stored or message not in history.sent_s:
            continue
        faults = _faults_in_sight(history.sent_s[message], last_s[message], history.disturbances)
        if count > stored * (1 + _BREAKS_MAX * faults) + _refusals(subscription, message, history):
            yield f"{name} got {message} {count} times, stored {stored} times, with {faults} faults in sight"


def _taken_in_vain(
    name: str, subscription: Subscription, history: History, copies: Counter[str], windows: Sequence[Window]
) -> Iterator[str]:
    """What was taken while there was calm enough to save its acknowledgement comes no more, whatever falls over."""
    saved: set[str] = set()
    for each in subscription.taken:
        if each.at_s > history.settled_s:
            yield f"{name} got {each.name} when all was acknowledged and saved"
        elif each.name in saved and copies[each.name] < 2 and not _refusals(subscription, each.name, history):
            yield f"{name} got {each.name} although its acknowledgement had time to be saved"
        window = _window_of(each.at_s, windows)
        if window is not None and each.at_s + _SAVED_WITHIN_S <= window.ended_s:
            saved.add(each.name)


def _calm_deliveries(
    name: str, subscription: Subscription, history: History, windows: Sequence[Window]
) -> Iterator[str]:
    """What was sent and taken in one calm window came once; to the active consumer, or to the one that has its key."""
    counts: Counter[str] = Counter()
    owners: dict[tuple[Window, str], dict[str, str]] = defaultdict(dict)
    for each in subscription.taken:
        window = _window_of(each.at_s, windows)
        if window is None or history.sent_s.get(each.name, 0.0) < window.began_s:
            continue
        counts[each.name] += 1
        share = key_of(each.name) if subscription.kind is Kind.KEY_SHARED else ""
        owners[window, share].setdefault(each.consumer, each.name)
    if windows and not counts:
        yield f"{name} got nothing in any calm window"
    for message, count in counts.items():
        if count > 1 + _refusals(subscription, message, history):
            yield f"{name} got {message} {count} times in a calm window"
    if subscription.kind is Kind.SHARED:
        return
    for (_, share), firsts in owners.items():
        if len(firsts) > 1:
            what = f"key {share}" if share else "the subscription"
            takers = ", ".join(f"{consumer} took {message}" for consumer, message in firsts.items())
            yield f"{name}: {what} had several consumers in a calm window: {takers}"


def _refusals(subscription: Subscription, message: str, history: History) -> int:
    """How often a message may come again because another one of its batch was refused."""
    is_batched = history.senders[producer_of(message)].is_batched
    return subscription.refused[key_of(message)] if is_batched else 0


def _keys_out_of_order(where: str, names: Iterable[str]) -> list[str]:
    """Whatever came again, first deliveries of one key keep the order in which it was sent."""
    by_key: dict[str, dict[int, None]] = defaultdict(dict)
    for name in names:
        by_key[key_of(name)][number_of(name)] = None
    broken: list[str] = []
    for key, numbers in by_key.items():
        pairs = (f"{after} came first after {before}" for before, after in pairwise(numbers) if after < before)
        broken += [f"{where}, key {key}: {sentence}" for sentence in list(pairs)[:1]]
    return broken


# --- when ---------------------------------------------------------------------------------------


def _window_of(at_s: float, windows: Sequence[Window]) -> Window | None:
    index = bisect_right(windows, at_s, key=lambda window: window.began_s) - 1
    return windows[index] if index >= 0 and at_s <= windows[index].ended_s else None


def _faults_in_sight(began_s: float, ended_s: float, disturbances: Sequence[Disturbance]) -> int:
    return sum(each.began_s <= ended_s and each.ended_s + _AFTERMATH_S >= began_s for each in disturbances)
