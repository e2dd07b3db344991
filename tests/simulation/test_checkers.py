# SPDX-License-Identifier: Apache-2.0
"""Checkers on histories written by hand: a good one passes all, each bad one is caught by the one that should."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.simulation.world.atlas import Atlas
from tests.simulation.world.checkers.cursors import Acked, cursor
from tests.simulation.world.checkers.durability import DurableAcks
from tests.simulation.world.checkers.liveness import nothing_overdue
from tests.simulation.world.checkers.messages import (
    Received,
    Sent,
    no_acked_loss,
    no_ghost,
    no_unexplained_copy,
    order,
)
from tests.simulation.world.checkers.saved_cursors import SavedAcks, saved_cursors, saved_when_asked
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import History, Operation

Check = Callable[[History], list[Violation]]

ALL: dict[str, Check] = {
    "no_acked_loss": no_acked_loss,
    "order": order,
    "no_ghost": no_ghost,
    "no_unexplained_copy": no_unexplained_copy,
    "cursor": cursor,
}


class Story:
    """A history in few words. Topic `t`, producer `p`, subscription `s`."""

    def __init__(self) -> None:
        self.history = History()

    def send(self, sequence: int, outcome: str = "ok", position: Any = None, producer: str = "p") -> "Story":
        value = Sent("t", producer, sequence, f"{producer}{sequence}")
        return self._end(self.history.invoke(producer, "send", value), outcome, position)

    def scan(self, *found: tuple[int, str]) -> "Story":
        return self._end(self.history.invoke("reader", "scan", "t"), "ok", list(found))

    def receive(
        self,
        position: int,
        payload: str,
        *,
        redelivered: bool = False,
        consumer: str = "c",
        lane: str | None = None,
    ) -> "Story":
        value = Received("t", "s", position, payload, redelivered, lane)
        return self._end(self.history.invoke(consumer, "receive", value), "ok", None)

    def ack(self, position: int, outcome: str = "ok", *, cumulative: bool = False) -> "Story":
        return self._end(self.history.invoke("c", "ack", Acked("t", "s", position, cumulative)), outcome, None)

    def drain(self, *positions: int) -> "Story":
        return self._end(self.history.invoke("c", "drain", ("t", "s")), "ok", list(positions))

    def cursor(self, position: int) -> "Story":
        return self._end(self.history.invoke("admin", "cursor", ("t", "s")), "ok", position)

    def _end(self, operation: Operation, outcome: str, result: Any) -> "Story":
        if outcome != "pending":
            getattr(self.history, outcome)(operation, result)
        return self

    def caught_by(self) -> list[str]:
        return [name for name, check in ALL.items() if check(self.history)]


def good() -> Story:
    """Two producers, a retry that left two copies, a refused message, one whose end nobody knows, and acks."""
    story = Story()
    story.send(0, position=0).send(1, "info").send(1, position=3).send(0, position=1, producer="q")
    story.send(2, "fail").send(3, "info").send(4, "pending")
    story.receive(0, "p0").receive(1, "q0").receive(2, "p1").receive(2, "p1", redelivered=True)
    story.ack(0).ack(1, "info").cursor(0)
    story.receive(3, "p1").cursor(1)
    story.scan((0, "p0"), (1, "q0"), (2, "p1"), (3, "p1"))
    return story.drain(2, 3)


def test_a_good_history_passes() -> None:
    assert good().caught_by() == []


@pytest.mark.parametrize(
    ("story", "caught_by"),
    [
        (Story().send(0, position=0).scan(), ["no_acked_loss"]),
        (Story().send(0, position=0).scan((0, "p0")).scan(), ["no_acked_loss"]),
        (Story().send(0, position=5).scan((0, "p0")), ["no_acked_loss"]),
        (Story().send(0).send(1).scan((0, "p1"), (1, "p0")), ["order"]),
        (Story().send(0).send(1).scan((1, "p0"), (0, "p1")), ["order"]),
        (Story().send(0).send(1).scan((0, "p0"), (0, "p1")), ["order"]),
        (Story().send(0).send(1).receive(0, "p0").scan((0, "p1"), (1, "p0")), ["order"]),
        (Story().send(0, position=1).send(1).scan((0, "p0"), (1, "p1")), ["no_acked_loss", "order"]),
        (Story().send(0).send(1).receive(1, "p1").receive(0, "p0"), ["order"]),
        (Story().scan((0, "p0")), ["no_ghost"]),
        (Story().receive(0, "p0"), ["no_ghost"]),
        (Story().send(0, "fail").scan((0, "p0")), ["no_ghost"]),
        (Story().receive(0, "p0").send(0), ["no_ghost"]),
        (Story().send(0).scan((0, "p0"), (1, "p0")), ["no_unexplained_copy"]),
        (Story().send(0, "fail").send(0).scan((0, "p0"), (1, "p0")), ["no_unexplained_copy"]),
        (Story().send(0).receive(0, "p0").ack(0).receive(0, "p0", redelivered=True), ["cursor"]),
        (Story().send(0).send(1).ack(1, cumulative=True).drain(0), ["cursor"]),
        (Story().send(0).ack(0).drain(0), ["cursor"]),
        (Story().send(0).send(1).scan((0, "p0"), (1, "p1")).ack(0).drain(), ["cursor"]),
        (Story().cursor(5).cursor(4), ["cursor"]),
    ],
)
def test_a_bad_history_is_caught(story: Story, caught_by: list[str]) -> None:
    assert story.caught_by() == caught_by


@pytest.mark.parametrize("cumulative", [False, True])
def test_what_another_acknowledged_may_come_late_when_that_is_lost(cumulative: bool) -> None:
    """Seed 1014 of `cluster` with kill=2.0: of a batch the first message came, then a later entry, then a broker died
    with the acknowledgement of the second one by an earlier life of the consumer.
    """
    story = Story().send(0).send(1).receive(0, "p0", consumer="earlier").ack(0, "info", cumulative=cumulative)
    assert story.receive(1, "p1").receive(0, "p0").caught_by() == []


def test_a_lane_goes_on_where_it_was_with_whoever_has_it() -> None:
    """The second of two begins again at what is not acknowledged; the first takes what it still has."""
    story = Story().send(0).send(1).send(2)
    story.receive(0, "p0", lane="k").receive(0, "p0", redelivered=True, consumer="d", lane="k")
    story.receive(1, "p1", consumer="d", lane="k").receive(1, "p1", lane="k").receive(2, "p2", lane="k")
    assert story.caught_by() == []


def test_two_who_have_one_lane_at_once_are_caught() -> None:
    story = Story().send(0).send(1)
    story.receive(1, "p1", consumer="d", lane="k").receive(0, "p0", lane="k")
    assert story.caught_by() == ["order"]
    apart = Story().send(0).send(1)
    apart.receive(1, "p1", consumer="d", lane="k").receive(0, "p0", lane="j")
    assert apart.caught_by() == []


class Saves:
    """What brokers saved of one cursor, in few words. Eight messages: six entries, of which the last is a batch."""

    STORED = ((0, 0, -1), (0, 1, -1), (0, 2, -1), (1, 0, -1), (1, 1, -1), (1, 2, 0), (1, 2, 1), (1, 2, 2))

    def __init__(self, *saves: SavedAcks, owed: tuple[tuple[int, ...], ...] | None = None, backlog: int = -1) -> None:
        self.history = History()
        for number, saved in enumerate(saves):
            self.history.ok(self.history.invoke(f"broker-{number}", "save", ("t", "s")), saved)
        found = [(position, str(position)) for position in self.STORED]
        self.history.ok(self.history.invoke("reader", "scan", "t"), found)
        if owed is not None:
            if backlog >= 0:
                self.history.ok(self.history.invoke("reader", "backlog", ("t", "s")), backlog)
            self.history.ok(self.history.invoke("reader", "drain", ("t", "s")), list(owed))

    def promises(self) -> list[str]:
        return [violation.promise for violation in saved_cursors(self.history)]


def test_saves_that_go_on_from_one_another_pass() -> None:
    first = SavedAcks((0, 0), ((0, 2),), (((1, 2), 0b101),))
    second = SavedAcks((0, 2), (), (((1, 2), 0b001),))
    third = SavedAcks((1, -1), ((1, 2),))
    assert Saves(first, second, third, owed=Saves.STORED[3:5], backlog=2).promises() == []
    # An answer may come late, to one who is not the owner any more.
    assert Saves(second, first, third).promises() == []


@pytest.mark.parametrize(
    ("saves", "promises"),
    [
        (Saves(SavedAcks((0, 0), ((0, 2),)), SavedAcks((0, 1))), ["I9 cursor"]),
        (Saves(SavedAcks((0, 0), (), (((1, 2), 0b110),)), SavedAcks((0, 0), (), (((1, 2), 0b011),))), ["I9 cursor"]),
        (Saves(SavedAcks((0, 1)), owed=Saves.STORED[1:]), ["I9 cursor"]),
        (Saves(SavedAcks((1, 1), (), (((1, 2), 0b101),)), owed=Saves.STORED[5:]), ["I9 cursor"]),
        (Saves(SavedAcks((0, 2)), owed=Saves.STORED[3:], backlog=4), ["backlog is exact"]),
    ],
)
def test_saves_that_break_a_promise_are_caught(saves: Saves, promises: list[str]) -> None:
    assert saves.promises() == promises


def test_a_save_that_says_more_than_was_asked_for_is_caught() -> None:
    def judged(*asked: Acked) -> list[str]:
        history = History()
        for acked in asked:
            history.invoke("c", "ack", acked)
        history.ok(history.invoke("broker", "save", ("t", "s")), SavedAcks((0, 1)))
        # Too late to be what was saved.
        history.invoke("c", "ack", Acked("t", "s", (0, 1, -1)))
        history.ok(history.invoke("reader", "scan", "t"), [((0, number, -1), "") for number in range(3)])
        return [violation.sentence for violation in saved_when_asked(history)]

    assert judged(Acked("t", "s", (0, 1, -1), cumulative=True)) == []
    assert judged(Acked("t", "s", (0, 0, -1)), Acked("t", "s", (0, 1, -1))) == []
    assert judged(Acked("t", "s", (0, 0, -1)), Acked("t", "other", (0, 1, -1))) == [
        "t/s: (0, 1, -1) was saved as acknowledged before anyone asked for it"
    ]
    assert "(0, 0, -1)" in judged()[0]


def test_an_unknown_outcome_may_have_happened_or_not() -> None:
    assert Story().send(0, "info").scan().caught_by() == []
    assert Story().send(0, "info").scan((0, "p0")).caught_by() == []
    assert Story().send(0, "pending").scan((0, "p0")).caught_by() == []
    assert Story().send(0).ack(0, "info").scan((0, "p0")).drain().caught_by() == []
    assert Story().send(0).ack(0, "info").scan((0, "p0")).drain(0).caught_by() == []


def test_with_deduplication_no_copy_is_explained() -> None:
    story = Story().send(0, "info").send(0).scan((0, "p0"), (1, "p0"))
    assert story.caught_by() == []
    assert no_unexplained_copy(story.history, deduplicated=True)


def test_an_operation_that_never_ends_is_overdue() -> None:
    now = 0.0
    history = History(lambda: now)
    history.ok(history.invoke("p", "send", "done"))
    history.invoke("p", "send", "stuck")
    now = 59.0
    assert nothing_overdue(history, patience_s=60) == []
    now = 61.0
    violations = nothing_overdue(history, patience_s=60)
    assert [violation.evidence[0].value for violation in violations] == ["stuck"]


def test_an_acknowledgement_before_the_sync_is_caught(loop_run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        disk, watch = SimulatedDisk(), DurableAcks()
        file = await disk.open("f", create=True)
        await file.write(0, [b"abc"])
        watch.acknowledged("n", disk, "f", 0, 3)
        await file.sync()
        watch.acknowledged("n", disk, "f", 0, 3)
        await disk.sync_directory(".")
        assert len(watch.violations) == 2, "bytes without a durable name are not durable either"
        watch.acknowledged("n", disk, "f", 0, 3)
        await file.write(3, [b"def"])
        watch.acknowledged("n", disk, "f", 0, 3)
        assert len(watch.violations) == 2
        watch.acknowledged("n", disk, "f", 0, 6)
        watch.acknowledged("n", disk, "absent", 0, 0)
        assert len(watch.violations) == 4
        assert watch.checked == 6

    loop_run(scenario())


def test_an_operation_ends_once() -> None:
    history = History()
    operation = history.invoke("p", "send", 1)
    history.info(operation)
    with pytest.raises(AssertionError, match="ended twice"):
        history.ok(operation)


def test_a_violation_is_readable() -> None:
    violation = no_acked_loss(Story().send(0, position=7).scan().history)[0]
    text = str(violation)
    assert text.startswith("I1 acked-readable: ")
    assert "p send" in text
    assert len(str(Violation("I1", "x" * 10_000))) < 400


def test_the_atlas_never_lets_the_last_copy_go() -> None:
    atlas = Atlas()
    for node in ("a", "b"):
        atlas.stored("one", node)
    atlas.stored("two", "a")
    assert atlas.copies("one") == ["a", "b"]
    assert atlas.may_damage("a", "one")
    assert not atlas.may_damage("a", "two")
    assert not atlas.may_wipe("a")
    assert atlas.may_wipe("b")
    atlas.wiped("b")
    assert not atlas.may_damage("a", "one")
    atlas.stored("one", "c")
    atlas.deleted("two")
    assert atlas.may_wipe("a")
    assert not atlas.excused
    atlas.damaged("a", "one")
    atlas.damaged("c", "one")
    assert list(atlas.excused) == ["one"]
