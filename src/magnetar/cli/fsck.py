# SPDX-License-Identifier: Apache-2.0
"""`magnetar fsck`: every fragment of every ledger, on every bookie that must hold it.

Lists what each bookie says it holds against what the record demands, and what it holds without a record that asks for
it; reads every entry and checks both its checksums when asked to. Names what is missing, damaged, or held for nobody,
and ledgers that the topic they were made for does not know.
Of a ledger that is still written, what is confirmed must be on an ack quorum: more copies may be on their way.
With --repair, what is missing of closed fragments is copied again, and bookies are told to collect what nobody needs;
they prove that themselves before they do. Never deletes anything itself.
Assembles.
"""

import contextlib
from collections import Counter
from typing import NamedTuple

from magnetar.cli.bookkeeper_shell import Shell
from magnetar.cli.fsck_bookies import Totals, check_bookies
from magnetar.errors import EntryUnknown, MagnetarError, NoSuchEntry, NoSuchLedger
from magnetar.ledger.audit import Fragment, entries_of, fragments_of
from magnetar.ledger.catalog import Versioned
from magnetar.ledger.fragment_check import FragmentCheck
from magnetar.managed_ledger.orphans import orphans


class Findings(NamedTuple):
    """What one ledger lacks: bookies that do not hold their part, with how many entries each lacks."""

    missing: dict[str, int]
    unreachable: dict[str, str]


async def check(shell: Shell, *, deep: bool, repair: bool) -> Totals:
    """Walk over everything; one line per finding."""
    totals = Totals()
    catalog = shell.client.ledgers.catalog
    async for ledger_id in catalog.ledger_ids():
        try:
            known = await catalog.load(ledger_id)
        except NoSuchLedger:
            continue
        totals.ledgers += 1
        found = await _look(shell, known, totals, deep=deep)
        for bookie, why in found.unreachable.items():
            totals.unreachable += 1
            shell.say(f"ledger {ledger_id}: {bookie} does not say what it holds: {why}")
        for bookie, count in found.missing.items():
            totals.missing += count
            shell.say(f"ledger {ledger_id}: {bookie} lacks {count} entries")
        await _look_at_end(shell, known, totals)
        if repair and found.missing:
            await _repair(shell, ledger_id, found)
            again = await _look(shell, await catalog.load(ledger_id), Totals(), deep=deep)
            left = sum(again.missing.values())
            totals.repaired += sum(found.missing.values()) - left
            shell.say(f"ledger {ledger_id}: {'repaired' if not left else f'{left} entries still missing'}")
    await check_bookies(shell, totals, deep=deep, repair=repair)
    await _look_for_owners(shell, totals)
    shell.say(
        f"{totals.ledgers} ledgers, {totals.copies} copies of entries checked, {totals.missing} missing, "
        f"{totals.repaired} repaired, {totals.unreachable} bookies without an answer, {totals.orphans} ledgers held "
        f"for nobody, {totals.collected} collected, {totals.damaged} entries damaged, {totals.unknown} ledgers that "
        "their owners do not know"
    )
    return totals


async def _look_for_owners(shell: Shell, totals: Totals) -> None:
    """Ledgers that say whose they are, while their owner's records do not name them."""
    try:
        async for orphan in orphans(shell.store, shell.client.ledgers):
            totals.unknown += 1
            owner = orphan.owner
            shell.say(f"ledger {orphan.ledger_id} was made for {owner}, which does not know it: it only takes room")
    except MagnetarError as error:
        totals.unreachable += 1
        shell.say(f"which ledgers their owners do not know cannot be told: {error}")


async def _look(shell: Shell, known: Versioned, totals: Totals, *, deep: bool) -> Findings:
    found = Findings({}, {})
    for fragment in fragments_of(known.record):
        for member, bookie in enumerate(fragment.ensemble):
            expected = entries_of(fragment, known.record.quorum, member)
            totals.copies += len(expected)
            try:
                lacking = await _lacking(shell, known, fragment, member, expected, deep=deep)
            except MagnetarError as error:
                found.unreachable[bookie] = str(error)
                continue
            if lacking:
                found.missing[bookie] = found.missing.get(bookie, 0) + lacking
    return found


async def _look_at_end(shell: Shell, known: Versioned, totals: Totals) -> None:
    """The fragment that is still written, as far as it is confirmed. It is told and not repaired: its writer lives."""
    ledger_id, fragment = known.record.ledger_id, fragments_of(known.record)[-1]
    if not fragment.is_growing:
        return
    try:
        lacking = await _below_quorum(shell, known, fragment, totals)
        is_same = (await shell.client.ledgers.catalog.load(ledger_id)).version == known.version
    except NoSuchLedger:
        return
    except MagnetarError as error:
        totals.unreachable += 1
        shell.say(f"ledger {ledger_id} is still written, and how far it is confirmed cannot be asked: {error}")
        return
    # A writer that changed the ensemble meanwhile has written anew what was missing.
    for bookie, count in lacking.items() if is_same else ():
        totals.missing += count
        shell.say(
            f"ledger {ledger_id}: {bookie} lacks {count} confirmed entries, and too few others have them; it is still "
            "written: unload its topic, or `magnetar bookkeeper recover` the bookie, and look again"
        )


async def _below_quorum(shell: Shell, known: Versioned, fragment: Fragment, totals: Totals) -> dict[str, int]:
    record, ledgers = known.record, shell.client.ledgers
    reader = await ledgers.open_without_recovery(record.ledger_id, password=record.password)
    try:
        fragment = fragment._replace(last_entry=await reader.read_last_confirmed(of_all=True))
    finally:
        reader.close()
    copies: Counter[int] = Counter()
    lacking: dict[str, list[int]] = {}
    for member, bookie in enumerate(fragment.ensemble):
        expected = entries_of(fragment, record.quorum, member)
        totals.copies += len(expected)
        try:
            held = set(await shell.client.channels(bookie).entry_ids(record.ledger_id))
        except MagnetarError:
            held = set(expected) - set(await FragmentCheck(record, ledgers.parts).missing(fragment, member))
        copies.update(held)
        lacking[bookie] = [entry_id for entry_id in expected if entry_id not in held]
    short = {bookie: sum(copies[e] < record.quorum.ack_quorum for e in found) for bookie, found in lacking.items()}
    return {bookie: count for bookie, count in short.items() if count}


async def _lacking(
    shell: Shell, known: Versioned, fragment: Fragment, member: int, expected: list[int], *, deep: bool
) -> int:
    """How many entries a member does not give; a bookie that cannot list what it holds is asked for each entry."""
    if not expected:
        return 0
    channel = shell.client.channels(fragment.ensemble[member])
    ledger_id = known.record.ledger_id
    try:
        held = set(await channel.entry_ids(ledger_id))
    except NoSuchLedger:
        return len(expected)
    except MagnetarError:
        # Does it answer at all? If not, that is what there is to say of it. In limbo it does, and gives what it has.
        with contextlib.suppress(EntryUnknown, NoSuchEntry, NoSuchLedger):
            await channel.read(ledger_id, expected[0])
        deep = True
    else:
        absent = sum(1 for entry_id in expected if entry_id not in held)
        if absent:
            return absent
    if not deep:
        return 0
    return len(await FragmentCheck(known.record, shell.client.ledgers.parts).missing(fragment, member))


async def _repair(shell: Shell, ledger_id: int, found: Findings) -> None:
    repairs = shell.recovery.repairs
    await repairs.mark(ledger_id, list(found.missing))
    mark = await repairs.look(ledger_id)
    if mark is None or not await repairs.lock(ledger_id):
        shell.say(f"ledger {ledger_id}: somebody repairs it already")
        return
    try:
        if await shell.recovery.replicator.repair(mark):
            await repairs.finish(mark)
    finally:
        await repairs.unlock(ledger_id)
