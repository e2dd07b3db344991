# SPDX-License-Identifier: Apache-2.0
"""The judge of a soak: an honest history with a fault in it passes, and each planted lie is called by its name."""

import math
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.cluster import Cluster
from tests.faults.soak_checks import violations
from tests.faults.soak_faults import Faults
from tests.faults.soak_history import (
    KEYS,
    ONCE_TOPIC,
    TOPIC,
    Disturbance,
    History,
    Kind,
    Mishap,
    Sample,
    Sender,
    Subscription,
    Taken,
    Window,
    calm_windows,
    key_of,
    number_of,
)

END_S = 100
FAULT_S = (40.0, 50.0)
LATE_S = 52.0
CONSUMERS = {
    "exclusive": (Kind.EXCLUSIVE, ["e"]),
    "failover": (Kind.FAILOVER, ["f1", "f2"]),
    "shared": (Kind.SHARED, ["s1", "s2"]),
    "key-shared": (Kind.KEY_SHARED, ["k1", "k2"]),
}
Found = dict[str, list[str]]
Lie = Callable[[History, Found], object]


def honest() -> tuple[History, Found]:
    """Two messages a second and producer. The broker is killed at 40: what was in flight is stored and taken twice,
    Failover and Key_Shared go on with another consumer.
    """
    history = History()
    found: Found = {TOPIC: [], ONCE_TOPIC: []}
    history.senders = {"plain": Sender(), "batched": Sender(is_batched=True), "once": Sender(ONCE_TOPIC, True)}
    history.subscriptions = {
        name: Subscription(kind, consumers=list(consumers), backlog=0) for name, (kind, consumers) in CONSUMERS.items()
    }
    history.disturbances = [Disturbance("kill -9 of the broker", *FAULT_S)]
    history.samples = [Sample(at, at + 0.1, _members(at)) for at in range(END_S)]
    for number in range(2 * END_S):
        for producer, sender in history.senders.items():
            _send(history, sender, f"{producer}:{number}", number / 2)
            if sender.topic == ONCE_TOPIC:
                found[ONCE_TOPIC].append(f"{producer}:{number}")
    for each in history.subscriptions.values():
        each.taken.sort(key=lambda taken: taken.at_s)
    found[TOPIC] = _with_resent(history)
    return history, found


def _with_resent(history: History) -> list[str]:
    """What was in flight at the fault is stored once more, in order, when it is over."""
    names = [f"{producer}:{number}" for number in range(2 * END_S) for producer in ("plain", "batched")]
    again = [name for name in names if 80 <= number_of(name) < 84]
    return [*names[:168], *again, *names[168:]]


def _members(at_s: float) -> frozenset[str] | None:
    if FAULT_S[0] <= at_s < LATE_S:
        return None
    return frozenset({f"everybody, since {0 if at_s < FAULT_S[0] else LATE_S}"})


def _send(history: History, sender: Sender, name: str, at_s: float) -> None:
    sender.names.append(name)
    history.sent_s[name] = at_s
    is_late = FAULT_S[0] <= at_s < LATE_S
    history.acknowledged[name] = LATE_S if is_late else at_s + 0.1
    if sender.topic != TOPIC:
        return
    for subscription, each in history.subscriptions.items():
        times = [LATE_S + at_s / 1000] if is_late else [at_s + 0.2]
        if 80 <= number_of(name) < 84:
            times += [LATE_S + 0.5 + at_s / 1000]
        each.taken += [Taken(name, _owner(subscription, name, time_s), time_s) for time_s in times]


def _owner(subscription: str, name: str, at_s: float) -> str:
    _, consumers = CONSUMERS[subscription]
    if subscription == "failover":
        return consumers[at_s > FAULT_S[0]]
    if subscription == "key-shared":
        return consumers[(number_of(name) + (at_s > FAULT_S[0])) % 2]
    return consumers[number_of(name) % len(consumers)]


def all_by(subscription: str, consumer: str) -> Lie:
    def lie(history: History, _: Found) -> None:
        each = history.subscriptions[subscription]
        each.taken = [taken._replace(consumer=consumer) for taken in each.taken]

    return lie


def taking_turns(subscription: str, step: int) -> Lie:
    """`step` messages in a row to one consumer, then to the other."""

    def lie(history: History, _: Found) -> None:
        each = history.subscriptions[subscription]
        each.taken = [
            taken._replace(consumer=each.consumers[index // step % 2]) for index, taken in enumerate(each.taken)
        ]

    return lie


def taken_again(subscription: str, times: int, at_s: float) -> Lie:
    def lie(history: History, _: Found) -> None:
        each = history.subscriptions[subscription]
        index, taken = next((index, taken) for index, taken in enumerate(each.taken) if taken.at_s >= at_s)
        each.taken[index:index] = [taken] * times

    return lie


def swapped_keys(history: History, _: Found) -> None:
    taken = history.subscriptions["key-shared"].taken
    taken[20], taken[20 + 2 * KEYS] = taken[20 + 2 * KEYS], taken[20]
    assert key_of(taken[20].name) == key_of(taken[20 + 2 * KEYS].name)


def sent_only(count: int) -> Lie:
    def lie(history: History, _: Found) -> None:
        for number in range(count):
            history.sent_s[f"plain:{1000 + number}"] = 90.0
            history.senders["plain"].names.append(f"plain:{1000 + number}")

    return lie


def given_up(history: History, _: Found) -> None:
    sent_only(999)(history, {})
    history.failed = {f"plain:{1000 + number}": "Timeout" for number in range(999)}


def stored_thrice(history: History, found: Found) -> None:
    found[TOPIC] = [name for name in found[TOPIC] for _ in range(3)]


def stored_often_at_the_fault(history: History, found: Found) -> None:
    found[TOPIC] += ["plain:90"] * 9


def lost(history: History, found: Found) -> None:
    found[TOPIC].remove("plain:7")


def stored_twice_once(history: History, found: Found) -> None:
    found[ONCE_TOPIC].insert(85, "once:84")


def ghost(history: History, found: Found) -> None:
    found[TOPIC].append("plain:5000")


def never_delivered(history: History, _: Found) -> None:
    each = history.subscriptions["shared"]
    each.taken = [taken for taken in each.taken if taken.name != "plain:9"]


def without_calm(history: History, _: Found) -> None:
    """Somebody connects again and again, and no fault explains it."""
    history.samples = [each._replace(members=frozenset({str(index)})) for index, each in enumerate(history.samples)]


def backlogged(history: History, _: Found) -> None:
    history.subscriptions["exclusive"].backlog = 3


def unknown_backlog(history: History, _: Found) -> None:
    history.subscriptions["exclusive"].backlog = None


def silent_producer(history: History, _: Found) -> None:
    history.senders["mute"] = Sender()


def told_in_calm(history: History, _: Found) -> None:
    history.mishaps.append(Mishap(20.5, "e", "AlreadyClosed"))


def never_ending(history: History, _: Found) -> None:
    history.disturbances.append(Disturbance("bookie paused", 98.5))


def forgotten_at_the_fault(history: History, _: Found) -> None:
    """The fault takes back ten seconds of acknowledgements."""
    taken = history.subscriptions["exclusive"].taken
    again = [each._replace(at_s=53.0) for each in taken if 28 <= each.at_s < 38]
    index = next(index for index, each in enumerate(taken) if each.at_s > 53)
    taken[index:index] = again


def forgotten_in_the_end(history: History, _: Found) -> None:
    taken = history.subscriptions["shared"].taken
    history.settled_s = 200.0
    taken.append(taken[-1]._replace(at_s=210.0))


def stranger(history: History, _: Found) -> None:
    history.subscriptions["shared"].taken[10] = history.subscriptions["shared"].taken[10]._replace(consumer="x")


LIES: dict[str, tuple[Lie, str]] = {
    "Failover is served in turns": (taking_turns("failover", 1), "failover: the subscription had several consumers"),
    "Failover switches now and then": (taking_turns("failover", 9), "failover: the subscription had several"),
    "Key_Shared keys change at each message": (
        taking_turns("key-shared", 2 * KEYS),
        "had several consumers in a calm window",
    ),
    "an acknowledged message comes again in calm": (taken_again("exclusive", 1, 20.0), "2 times in a calm window"),
    "a message comes again and again after a fault": (taken_again("exclusive", 20, 51.0), "with 1 faults in sight"),
    "Shared repeats in calm": (taken_again("shared", 1, 20.0), "2 times in a calm window"),
    "everything is stored three times": (stored_thrice, "is stored 3 times, and was sent and answered in a calm"),
    "stored more often than faults explain": (stored_often_at_the_fault, "plain:90 is stored 10 times, and faults"),
    "stored twice in spite of deduplication": (stored_twice_once, "once:84 is stored 2 times in spite of"),
    "one consumer of Shared gets nothing": (all_by("shared", "s1"), "s2 of shared never took anything"),
    "a standby never takes over": (all_by("failover", "f1"), "f2 of failover never took anything"),
    "999 are given up": (given_up, "999 messages were given up: Timeout"),
    "1,000 are never answered": (sent_only(1000), "1000 messages were sent and never answered"),
    "a producer gets no receipt": (silent_producer, "mute never got a receipt"),
    "an acknowledged message is gone": (lost, "plain:7 was acknowledged and is gone"),
    "a message that nobody sent": (ghost, "plain:5000 is stored in persistent://public/default/soak and was never"),
    "a message that one subscription never got": (never_delivered, "shared never got plain:9"),
    "order of a key": (swapped_keys, "key-shared, key"),
    "connections that change without a fault": (without_calm, "there was no calm at all"),
    "a backlog that stays": (backlogged, "exclusive still has a backlog at the end: 3"),
    "a backlog that nobody knows": (unknown_backlog, "exclusive still has a backlog at the end: None"),
    "an error in calm": (told_in_calm, "e was told in a calm window: AlreadyClosed"),
    "a fault that never ends": (never_ending, "bookie paused never ended"),
    "acknowledgements are forgotten": (forgotten_at_the_fault, "although its acknowledgement had time to be saved"),
    "what is saved comes again": (forgotten_in_the_end, "when all was acknowledged and saved"),
    "a consumer that nobody made": (stranger, "shared was taken from by x"),
}


def test_an_honest_history_passes() -> None:
    assert violations(*honest()) == []


def test_an_empty_history_does_not() -> None:
    broken = violations(History(), {})
    assert any("nobody produced" in sentence for sentence in broken)
    assert any("no calm" in sentence for sentence in broken)


@pytest.mark.parametrize(("lie", "sentence"), LIES.values(), ids=LIES)
def test_a_lie_is_called_by_its_name(lie: Lie, sentence: str) -> None:
    history, found = honest()
    lie(history, found)
    broken = violations(history, found)
    assert any(sentence in each for each in broken), broken[:5]


def test_a_refused_message_of_a_batch_may_bring_its_batch_again() -> None:
    history, found = honest()
    shared = history.subscriptions["shared"]
    index, taken = next((i, t) for i, t in enumerate(shared.taken) if t.at_s > 20 and t.name.startswith("batched"))
    shared.taken.insert(index, taken)
    assert violations(history, found) != []
    shared.refused[key_of(taken.name)] = 1
    assert violations(history, found) == []


def test_what_was_sent_before_the_calm_may_still_come_from_a_queue_of_old() -> None:
    """A consumer that is active no more gives out what it had fetched before, beside the one that is."""
    history, found = honest()
    taken = history.subscriptions["failover"].taken
    index, old = next((index, each) for index, each in enumerate(taken) if each.name == "plain:90")
    taken.insert(index + 40, Taken(old.name, "f1", taken[index + 40].at_s))
    assert violations(history, found) == []


def test_windows_end_with_faults_changes_and_silence() -> None:
    one, two = frozenset({"one"}), frozenset({"two"})
    samples = [Sample(at, at + 0.5, two if at >= 6 else one) for at in range(12)]
    samples[9] = Sample(9, 9.5, None)
    faults = [Disturbance("pause", 2.7, 3.2), Disturbance("pause", 11.9, math.inf)]
    assert calm_windows(samples, faults) == [Window(0.5, 2), Window(4.5, 5), Window(6.5, 8), Window(10.5, 11)]


def test_a_short_pause_between_two_samples_ends_a_window() -> None:
    samples = [Sample(at, at + 0.1, frozenset()) for at in range(6)]
    assert calm_windows(samples, [Disturbance("pause", 2.4, 2.5)]) == [Window(0.1, 2), Window(3.1, 5)]


def test_no_taker_in_any_calm_is_said() -> None:
    history, found = honest()
    chance = Random(1)
    taken = history.subscriptions["exclusive"].taken
    history.subscriptions["exclusive"].taken = [each._replace(at_s=45 + chance.random()) for each in taken]
    assert "exclusive got nothing in any calm window" in violations(history, found)


def test_every_kind_is_struck_once_before_chance_rules_and_the_seed_says_in_which_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faults, "revive", lambda faults: None)
    orders = []
    for number in range(2):
        faults = Faults(Cluster(tmp_path / str(number)), Random(3), History(), small_disk=None)
        assert set(faults.struck.values()) == {0}, "a row for each kind, struck or not"
        monkeypatch.setattr(faults, "_quit", _Hurry())
        monkeypatch.setattr(
            faults, "_kinds", {name: each._replace(strike=_idle) for name, each in faults._kinds.items()}
        )
        orders.append([faults.step() for _ in faults.struck])
        assert all(faults.struck.values()), "each kind once"
        assert faults.overlaps == sum(len(kinds) == 2 for kinds in orders[-1]) > 0
        assert faults.impossible["full disk"] == "mounting a small file system needs root"
        assert faults.impossible["cut link to bookie"] == "links are switched off"
    assert orders[0] == orders[1]


def test_a_fault_that_fails_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(Cluster(tmp_path), Random(3), History(), small_disk=None)
    monkeypatch.setattr(faults, "_kinds", {name: each._replace(strike=_fail) for name, each in faults._kinds.items()})
    with pytest.raises(ZeroDivisionError):
        faults.step()


class _Hurry(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        return True


def _idle(_: Random) -> None:
    pass


def _fail(_: Random) -> None:
    raise ZeroDivisionError
