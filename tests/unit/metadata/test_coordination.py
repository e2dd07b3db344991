# SPDX-License-Identifier: Apache-2.0
"""Locks and leader election on the in-memory store: who holds what, through every fate of a session."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from magnetar.errors import BadVersion, LockHeld, OutcomeUnknown
from magnetar.metadata.coordination import Claim, ClaimState, Coordination
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.metadata.store import Record, Stored
from magnetar.runtime.tasks import Tasks

pytestmark = [pytest.mark.feature("F-MD-22")]


class States:
    """Remembers what a claim went through, and waits for it."""

    def __init__(self) -> None:
        self.seen: list[ClaimState] = []
        self._told = asyncio.Event()

    def __call__(self, claim: Claim) -> None:
        self.seen.append(claim.state)
        self._told.set()

    async def until(self, *wanted: ClaimState) -> None:
        """Wait until the states seen end with those wanted."""
        async with asyncio.timeout(10):
            while tuple(self.seen[-len(wanted) :]) != wanted:
                self._told.clear()
                await self._told.wait()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition lies in several objects
            await asyncio.sleep(0)


def _agree_on_one(claims: list[Claim]) -> bool:
    leaders = [claim.value for claim in claims if claim.is_held]
    return not claims or (len(leaders) == 1 and all(claim.holder == leaders[0] for claim in claims))


class Member:
    """One process on the shared tree."""

    def __init__(self, store: MemoryStore, crashes: list[BaseException]) -> None:
        self.store = store
        self.tasks = Tasks("member", lambda name, error: crashes.append(error))
        self.coordination = Coordination(store, self.tasks)

    async def close(self) -> None:
        await self.coordination.close()
        await self.tasks.close()
        await self.store.close()


def on_tree(check: Callable[[MemoryTree, Callable[[], Member]], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        tree, members = MemoryTree(), []
        crashes: list[BaseException] = []

        def member(store: MemoryStore | None = None) -> Member:
            members.append(Member(store or tree.open_session(), crashes))
            return members[-1]

        await check(tree, member)
        for each in members:
            await each.close()
        assert crashes == []

    asyncio.run(run())


def test_a_lock_is_an_ephemeral_record_that_names_its_holder() -> None:
    async def check(tree: MemoryTree, member: Callable[[], Member]) -> None:
        one, two = member(), member()
        lock = await one.coordination.lock("/locks/a", b"one")
        assert lock.is_held
        record = await two.store.get("/locks/a")
        assert record is not None
        assert (record.value, record.ephemeral, record.version) == (b"one", True, lock.version)
        with pytest.raises(LockHeld, match="one"):
            await two.coordination.lock("/locks/a", b"two")
        with pytest.raises(LockHeld, match="this process"):
            await one.coordination.lock("/locks/a", b"one")
        await lock.release()
        assert lock.state is ClaimState.RELEASED
        assert (await two.coordination.lock("/locks/a", b"two")).is_held

    on_tree(check)


def test_the_holder_can_change_what_its_record_says_and_nobody_else() -> None:
    async def check(tree: MemoryTree, member: Callable[[], Member]) -> None:
        one, two = member(), member()
        lock = await one.coordination.lock("/l", b"one")
        await lock.update(b"one with load 3")
        record = await two.store.get("/l")
        assert record is not None
        assert (record.value, record.version) == (b"one with load 3", lock.version)
        await two.store.put("/l", b"meddled")
        with pytest.raises(BadVersion):
            await lock.update(b"one with load 4")

    on_tree(check)


def test_a_disconnected_lock_is_uncertain_and_held_again_after_reconnecting() -> None:
    async def check(tree: MemoryTree, member: Callable[[], Member]) -> None:
        one, states = member(), States()
        lock = await one.coordination.lock("/l", b"one", on_state=states)
        one.store.disconnect()
        await states.until(ClaimState.HELD, ClaimState.UNCERTAIN)
        assert not lock.is_held
        version = lock.version
        one.store.reconnect()
        await states.until(ClaimState.UNCERTAIN, ClaimState.HELD)
        assert lock.version == version

    on_tree(check)


@pytest.mark.feature("F-MD-17")
def test_a_lock_is_lost_with_its_session_and_claimed_again_in_the_next() -> None:
    async def check(tree: MemoryTree, member: Callable[[], Member]) -> None:
        one, two, states = member(), member(), States()
        lock = await one.coordination.lock("/l", b"one", epoch_path="/epochs/l", on_state=states)
        first_epoch = lock.epoch
        one.store.expire_session()
        await states.until(ClaimState.HELD, ClaimState.LOST)
        assert not await two.store.exists("/l")
        one.store.reestablish_session()
        await states.until(ClaimState.LOST, ClaimState.HELD)
        assert lock.epoch > first_epoch
        record = await two.store.get("/l")
        assert record is not None
        assert record.ephemeral

    on_tree(check)


class LaggingStore(MemoryStore):
    """At a node that was left behind: it answers with what was, until it has passed a write of this session on."""

    def __init__(self, tree: MemoryTree, was: Record | None) -> None:
        super().__init__(tree)
        self._was = was
        self._lags = True

    async def get(self, path: str) -> Record | None:
        return self._was if self._lags else await super().get(path)

    async def put(self, path: str, value: bytes, **options: Any) -> Stored:
        self._lags = False
        return await super().put(path, value, **options)


@pytest.mark.parametrize("was_ours", [True, False])
def test_what_a_node_left_behind_says_gives_nobody_a_lock(was_ours: bool) -> None:
    """F110: nobody holds it, or a former session of ours; in truth another does, in a record of the same version."""

    async def check(tree: MemoryTree, member: Callable[..., Member]) -> None:
        former = tree.open_session()
        await former.put("/l", b"one", ephemeral=True)
        was = await former.get("/l")
        await former.close()
        holder = await member().coordination.lock("/l", b"two")
        assert was is not None
        assert was.version == holder.version
        late = member(LaggingStore(tree, was if was_ours else None))
        with pytest.raises(LockHeld, match="two"):
            await late.coordination.lock("/l", b"one")
        record = await late.store.get("/l")
        assert record is not None
        assert (record.value, holder.is_held) == (b"two", True)

    on_tree(check)


def test_a_lock_that_someone_else_took_meanwhile_ends() -> None:
    async def check(tree: MemoryTree, member: Callable[[], Member]) -> None:
        one, two, states = member(), member(), States()
        lock = await one.coordination.lock("/l", b"one", epoch_path="/epochs/l", on_state=states)
        one.store.expire_session()
        other = await two.coordination.lock("/l", b"two", epoch_path="/epochs/l")
        assert other.epoch > lock.epoch
        one.store.reestablish_session()
        await states.until(ClaimState.HELD, ClaimState.LOST, ClaimState.HELD_BY_OTHER)
        assert lock.holder == b"two"
        await lock.release()
        assert other.is_held
        assert await two.store.exists("/l")

    on_tree(check)


def test_a_lock_deleted_by_someone_is_claimed_again_as_ephemeral() -> None:
    """Fault F113: a registration that was deleted comes back, and still ends with its session."""

    async def check(tree: MemoryTree, member: Callable[[], Member]) -> None:
        one, two = member(), member()
        states = States()
        lock = await one.coordination.lock("/l", b"one", epoch_path="/e", on_state=states)
        epoch = lock.epoch
        await two.store.delete("/l")
        await states.until(ClaimState.HELD, ClaimState.LOST, ClaimState.HELD)
        assert lock.epoch > epoch
        record = await two.store.get("/l")
        assert record is not None
        assert record.ephemeral
        one.store.expire_session()
        assert not await two.store.exists("/l")

    on_tree(check)


def test_a_record_that_could_not_be_deleted_when_it_was_released_goes_later() -> None:
    """Otherwise it names a holder that does not hold, for as long as the session lives."""

    async def check(tree: MemoryTree, member: Callable[[], Member]) -> None:
        owner, onlooker = member(), tree.open_session()
        for end in ("released", "abandoned", "claimed again"):
            claim = await owner.coordination.lock("/lock", b"me")
            owner.store.disconnect()
            if end == "abandoned":
                claim.abandon()
            else:
                await claim.release()
            assert await onlooker.get("/lock") is not None
            owner.store.reconnect()
            if end == "claimed again":
                again = await owner.coordination.lock("/lock", b"me")
                await until(lambda: len(owner.tasks) == 1)
                assert again.is_held
                assert await onlooker.get("/lock") is not None
            else:
                await until(lambda: not len(owner.tasks))
                assert await onlooker.get("/lock") is None
        await onlooker.close()

    on_tree(check)


def test_a_restarted_owner_takes_over_the_record_of_its_former_session() -> None:
    async def check(tree: MemoryTree, member: Callable[[], Member]) -> None:
        former = tree.open_session()
        await former.put("/l", b"broker-1", ephemeral=True)
        restarted = member()
        lock = await restarted.coordination.lock("/l", b"broker-1")
        assert lock.is_held
        await former.close()
        assert await restarted.store.exists("/l")

    on_tree(check)


class ForgetfulStore(MemoryStore):
    """Loses the answer of the next put, before or after it was carried out."""

    lose: str | None = None

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        lose, self.lose = self.lose, None
        if lose == "before":
            raise OutcomeUnknown("the request was lost")
        stored = await super().put(
            path, value, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
        )
        if lose == "after":
            raise OutcomeUnknown("the answer was lost")
        return stored


@pytest.mark.parametrize("lose", ["before", "after"])
def test_an_unknown_outcome_is_settled_by_looking_again(lose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.metadata.coordination.RETRY_MS", 1)

    async def check(tree: MemoryTree, member: Callable[..., Member]) -> None:
        store = ForgetfulStore(tree)
        one, states = member(store), States()
        store.lose = lose
        lock = await one.coordination.lock("/l", b"one", on_state=states)
        assert lock.is_held
        store.lose = lose
        with pytest.raises(OutcomeUnknown):
            await lock.update(b"one, new")
        # Whichever value stands there, it is ours, and the next look finds the version to go on with.
        store.disconnect()
        await states.until(ClaimState.UNCERTAIN)
        store.reconnect()
        await states.until(ClaimState.UNCERTAIN, ClaimState.HELD)
        assert ClaimState.HELD_BY_OTHER not in states.seen
        await lock.update(b"one, newer")
        held = tree.records.get("/l")
        assert held is not None
        assert (held.value, held.version) == (b"one, newer", lock.version)

    on_tree(check)


def test_one_candidate_leads_and_the_next_follows_when_it_goes() -> None:
    async def check(tree: MemoryTree, member: Callable[[], Member]) -> None:
        members = [member() for _ in range(3)]
        states = [States() for _ in members]
        claims = [
            each.coordination.candidate("/leader", b"m%d" % number, epoch_path="/terms", on_state=states[number])
            for number, each in enumerate(members)
        ]
        for claim in claims:
            await claim.settled()
        assert [claim.is_held for claim in claims].count(True) == 1
        epochs = []
        remaining = list(zip(claims, states, strict=True))
        while remaining:
            leader, _ = next(pair for pair in remaining if pair[0].is_held)
            epochs.append(leader.epoch)
            assert {claim.holder for claim, _ in remaining} == {leader.value}
            await leader.release()
            remaining = [pair for pair in remaining if pair[0] is not leader]
            await until(partial(_agree_on_one, [claim for claim, _ in remaining]))
        assert epochs == sorted(set(epochs))

    on_tree(check)


def test_a_leader_whose_session_ends_is_followed_and_competes_again() -> None:
    async def check(tree: MemoryTree, member: Callable[[], Member]) -> None:
        one, two = member(), member()
        states, others = States(), States()
        leader = one.coordination.candidate("/leader", b"one", on_state=states)
        await leader.settled()
        follower = two.coordination.candidate("/leader", b"two", on_state=others)
        await others.until(ClaimState.HELD_BY_OTHER)
        one.store.expire_session()
        await states.until(ClaimState.HELD, ClaimState.LOST)
        await others.until(ClaimState.HELD_BY_OTHER, ClaimState.HELD)
        one.store.reestablish_session()
        await states.until(ClaimState.LOST, ClaimState.HELD_BY_OTHER)
        assert leader.holder == b"two"
        await follower.release()
        await states.until(ClaimState.HELD_BY_OTHER, ClaimState.HELD)

    on_tree(check)
