# SPDX-License-Identifier: Apache-2.0
"""Compiled loops beside the plain ones, whatever MAGNETAR_PURE says: the same answers to the same bytes.

They are compiled without bounds checks, so that what only they do wrong may end the process: the fuzz's own is there
for that. Where nothing was built there are no twins, and tests say so.
Decides.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from magnetar.bookie import entry_batches, entry_log_format, records
from magnetar.bookie.ledger_state import LedgerState
from magnetar.broker import entry_facts
from magnetar.errors import BadFrame
from magnetar.managed_ledger.entry import Entry
from magnetar.wire import broker_entry, compiled, crc32c, frame, hot, message, runs
from magnetar.wire.bookkeeper import plain_adds, v2
from magnetar.wire.bookkeeper.entry import pack_crc32c
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.fuzz.target import PIECE_BYTES_MAX, Target

ROWS_MODULE: Final = "magnetar.spark._rows"
_KEY: Final = b"k" * 20


def _built(module: str) -> ModuleType | None:
    if not compiled.is_built(module):
        return None
    found = import_module(module)
    return found if getattr(found, "EDITION", None) == compiled.EDITION else None


RUNS: Final = _built(compiled.MODULE)
ROWS: Final = _built(ROWS_MODULE)

# Compiled functions that get no bytes from others, only our own numbers and buffers; properties of them are tested
# in tests/unit/wire/test_runs.py.
OF_OUR_OWN: Final = frozenset(
    {
        "are_plain",
        "entry_front",
        "frame_messages",
        "frame_receipts",
        "frame_single_receipts",
        "pack_entries",
        "pack_entry",
        "ready_run",
        "take_answered",
    }
)


def _same(what: str, plain: object, fast: object) -> None:
    assert plain == fast, f"{what}: plainly {plain!r:.200}, compiled {fast!r:.200}"


def frames_and_sends(data: bytes) -> None:
    assert RUNS is not None
    plain: list[Any] = []
    fast: list[Any] = []
    for start in (0, 3):
        _same(
            "where frames end",
            runs.PLAIN[0](data, start, PIECE_BYTES_MAX, plain),
            RUNS.cut_frames(data, start, PIECE_BYTES_MAX, fast),
        )
    _same("frames", plain, fast)
    for start in (0, 1, len(plain)):
        plain_run: list[Any] = []
        fast_run: list[Any] = []
        found, fast_found = runs.PLAIN[1](plain, start, plain_run), RUNS.read_sends(plain, start, fast_run)
        # Whose the first one is that is not read is not said.
        _same("where SENDs end", found if plain_run else found[0], fast_found if plain_run else fast_found[0])
        _same("SENDs", plain_run, fast_run)


def adds(data: bytes) -> None:
    assert RUNS is not None
    entries: list[bytes] = []
    fast: list[bytes] = []
    for key in (b"", _KEY):
        arguments = (data, 0, PIECE_BYTES_MAX, key)
        _same("where adds end", plain_adds.PLAIN[0](*arguments, entries), RUNS.cut_adds(*arguments, fast))
    _same("adds", entries, fast)
    if entries:
        of_entries(entries)


def of_entries(entries: list[bytes]) -> None:
    """What a bookie does with packed entries whose bytes are a client's."""
    assert RUNS is not None
    states = {5: LedgerState(5, _KEY), 6: LedgerState(6, b"x" * 20)}
    _same("answers", plain_adds.PLAIN[1](7, entries), RUNS.answer_adds(7, entries))
    fine = entry_batches.PLAIN[0](states, _KEY, entries, 0, 4096)
    _same("fine ledgers", fine, RUNS.fine_ledgers(states, _KEY, entries, 0, 4096))
    held: dict[int, dict[int, bytes]] = {}
    fast_held: dict[int, dict[int, bytes]] = {}
    _same("put", entry_batches.PLAIN[1](held, fine, entries, 0), RUNS.put_entries(fast_held, fine, entries, 0))
    _same("held", held, fast_held)
    last = len(entries) - 1
    _same("runs", entry_batches.PLAIN[2](entries, 0, last), RUNS.entry_runs(entries, 0, last))
    ledger_id, first = entry_batches.ids_of(entries[0])
    _same(
        "consecutive",
        entry_batches.PLAIN[3](entries, ledger_id, first, 4096),
        RUNS.are_consecutive(entries, ledger_id, first, 4096),
    )
    _same("intact", runs.PLAIN[3](ledger_id, first, entries), RUNS.count_intact(ledger_id, first, entries))
    _same("journal", records.PLAIN[0](1, 2, 3, entries), RUNS.journal_records(1, 2, 3, entries))
    sizes: dict[int, int] = {}
    fast_sizes: dict[int, int] = {}
    _same("log", records.PLAIN[1](1, 2, 3, entries, sizes), RUNS.log_records(1, 2, 3, entries, fast_sizes))
    _same("sizes", sizes, fast_sizes)
    _same("within", records.PLAIN[3](entries, 0, 500), RUNS.entries_within(entries, 0, 500))


def intact_entries(data: bytes) -> None:
    """Entries as a bookie sends them to a reader, of any size."""
    assert RUNS is not None
    entries = [data, data[: len(data) // 2], b""]
    ledger_id, first = entry_batches.ids_of(data) if len(data) >= 16 else (5, 6)
    _same("intact", runs.PLAIN[3](ledger_id, first, entries), RUNS.count_intact(ledger_id, first, entries))
    _same("checksum", crc32c.PLAIN(7, data), RUNS.extend(7, data))
    _same("checksum of a view", crc32c.PLAIN(7, data[1:]), RUNS.extend(7, memoryview(data)[1:]))


def log_run(data: bytes) -> None:
    assert RUNS is not None
    for start in (0, entry_log_format.HEADER_BYTES):
        for count_max in (1, 9):
            arguments = (_LOG_SEED, start, data, 5, 0, count_max)
            _same("run of a log", records.PLAIN[2](*arguments), RUNS.log_run(*arguments))


def fronts(data: bytes) -> None:
    """What is read of a stored message without protobuf is what protobuf reads, where it can."""
    assert RUNS is not None
    entry = Entry(1, 2, memoryview(data))
    for keyed in (False, True):
        (front,) = RUNS.read_fronts([entry], keyed)
        if front is None:
            continue
        start, messages, key = front
        try:
            metadata = message.read_metadata(entry.body, start)
        except BadFrame:
            # It is delivered as it is, and its consumer sees the damage.
            continue
        facts = entry_facts.parse_facts(entry)
        _same("front", (facts.message_start, facts.messages, facts.is_plain), (start, messages, True))
        _same("messages by protobuf", message.messages_in(metadata), messages)
        if keyed:
            _same("slot", entry_facts.with_key(entry, facts).key_hash, entry_facts.slot_of(key))


_MESSAGE: Final = b"".join(
    map(
        bytes,
        message.join(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString(), b"xy"),
    )
)
_KEYED: Final = b"".join(
    map(
        bytes,
        message.join(
            pb.MessageMetadata(
                producer_name="p", sequence_id=1, publish_time=1, partition_key="k", num_messages_in_batch=3
            ).SerializeToString(),
            b"xy",
        ),
    )
)
_SENDS: Final = b"".join(bytes(frame.join(hot.encode_send(3, 300 + n, 5, 304 + n), _MESSAGE)) for n in range(3))
_ENTRIES: Final = [pack_crc32c(5, number, number - 1, 10, (b"body",)) for number in range(3)]
_ADDS: Final = b"".join(v2.add_front(len(entry), _KEY) + entry for entry in _ENTRIES)
_OTHERS: Final = b"".join(
    v2.add_front(len(entry), _KEY) + entry for entry in (*_ENTRIES, pack_crc32c(6, 0, -1, 1, (b"b",)))
)
_LOG_SEED: Final = entry_log_format.checksum_seed(3)


def _log() -> bytes:
    offset, parts = 0, []
    for entry in _ENTRIES:
        parts.append(b"".join(entry_log_format.encode_record(_LOG_SEED, offset, entry)))
        offset += len(parts[-1])
    return b"".join(parts)


def _twin(name: str, compare: Callable[[bytes], None], *good: bytes) -> Target:
    return Target(f"compiled {name}", compare, good)


_OF_RUNS: Final = (
    _twin("frames", frames_and_sends, _SENDS, b"abc" + _SENDS),
    _twin("adds", adds, _ADDS, _OTHERS),
    _twin("intact entries", intact_entries, *_ENTRIES),
    _twin("log run", log_run, _log()),
    _twin("fronts", fronts, _MESSAGE, _KEYED, broker_entry.encode(1_700_000_000_000, 42) + _KEYED),
)


def _rows_targets() -> tuple[Target, ...]:
    """Spark's, where it is installed."""
    from tests.fuzz import row_twins

    return tuple(_twin(name, compare, *good) for name, compare, good in row_twins.COMPARED)


TWINS: Final = (*(_OF_RUNS if RUNS is not None else ()), *(_rows_targets() if ROWS is not None else ()))
