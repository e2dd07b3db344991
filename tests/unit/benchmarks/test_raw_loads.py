# SPDX-License-Identifier: Apache-2.0
"""Load generators on a connection of their own: frames that go again and again, schedules, and who counts what."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.journals import bookkeeper_bytes_held
from benchmarks.raw_connection import RawConnection
from benchmarks.raw_consume import messages_in
from benchmarks.raw_frames import Shape, Tally
from benchmarks.raw_paced import Paced
from benchmarks.raw_publish import Publisher
from magnetar.wire import frame
from magnetar.wire.proto import pulsar_api_pb2 as pb


class Line:
    """What a generator has of a connection: takes `room` bytes at a time, and answers with receipts."""

    def __init__(self, room: int = 1 << 20) -> None:
        self.socket = self
        self.room = room
        self.sent = b""
        self.answers: list[bytes] = []

    def send(self, data: memoryview) -> int:
        if not self.room:
            raise BlockingIOError
        self.sent += data[: self.room]
        return min(len(data), self.room)

    def write(self, data: bytes) -> None:
        self.sent += data

    def flush(self) -> bool:
        return True

    def answer(self, *producers: int) -> None:
        for producer in producers:
            command = pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT)
            command.send_receipt.producer_id = producer
            command.send_receipt.sequence_id = 0
            self.answers.append(frame.join(command.SerializeToString()))

    def frames(self) -> Iterator[tuple[int, bytes, int, int]]:
        answers, self.answers = self.answers, []
        for data in answers:
            yield int(pb.BaseCommand.SEND_RECEIPT), data, 0, len(data)

    def sends(self) -> list[tuple[int, int]]:
        """The producer and the entry's index of each SEND."""
        found = []
        for command, body in frame.FrameCutter().feed(self.sent):
            send = pb.BaseCommand.FromString(command).send
            found.append((send.producer_id, Shape(100).index_of(memoryview(body))))
        return found


def publisher(line: Line, count: int, **more: Any) -> Publisher:
    return Publisher("", ["a", "b"], count, Shape(100), 4, connection=cast("RawConnection", line), **more)


@pytest.mark.parametrize("room", [1, 60, 1 << 20])
def test_who_stops_finishes_what_has_begun_and_nothing_else(room: int) -> None:
    line = Line(room)
    load = publisher(line, 2**62, built=6)
    load.stop()
    assert load.is_done, "nothing has begun"
    load = publisher(line, 2**62, built=6)
    load.send()
    load.stop()
    begun = load.count
    assert begun == {1: 1, 60: 1, 1 << 20: 4}[room]
    while load.send():
        pass
    assert len(line.sends()) == begun
    assert load.send() is False
    line.answer(*[0] * begun)
    load.receive()
    assert load.is_done


def test_indexes_begin_where_they_should_and_the_window_holds() -> None:
    line = Line()
    load = publisher(line, 6, first=10)
    assert load.send() is False
    assert line.sends() == [(0, 10), (1, 11), (0, 12), (1, 13)]
    line.answer(0, 1)
    load.receive()
    load.send()
    assert [index for _, index in line.sends()] == [10, 11, 12, 13, 14, 15]
    line.answer(0, 1, 0, 1)
    load.receive()
    assert load.is_done


def test_a_few_frames_make_a_load_of_any_length() -> None:
    line = Line(room=70)
    load = publisher(line, 7, built=2)
    while not load.is_done:
        load.send()
        gone = len(line.sends())
        line.answer(*([0] * (gone - load.received)))
        load.receive()
    assert [index for _, index in line.sends()] == [0, 1, 0, 1, 0, 1, 0]
    assert len(load.latencies_ms) == 1


def test_a_schedule_goes_on_over_laps_and_waits_for_receipts_beyond_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    line, now = Line(), [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    load = Paced(cast("RawConnection", line), 2, Shape(100), rate=10, count=6, built=3, window=3)
    load.begin(100.5)
    assert load.send_due() == pytest.approx(0.5)
    assert not line.sent
    now[0] = 101.0  # the sixth is due
    load.send_due()
    assert [index for _, index in line.sends()] == [0, 1, 2]
    now[0] = 101.2
    line.answer(1, 0, 0)
    load.receive()
    load.send_due()
    # Whole rounds of both topics: four frames were built.
    assert line.sends() == [(0, 0), (1, 1), (0, 2), (1, 3), (0, 0), (1, 1)]
    assert load.latencies.publish_ms == pytest.approx([600, 700, 500])
    for index in (0, 1, 2, 3, 0):
        load.on_entry(memoryview(Shape(100).send(0, index, 0)))
    assert load.latencies.end_to_end_ms == pytest.approx([700, 600, 500, 400, 300])


def test_a_tally_knows_each_message() -> None:
    tally = Tally(Shape(100), 4)
    for index in (0, 2, 2, 3):
        tally.on_entry(memoryview(Shape(100).send(0, index, 0)))
    tally.on_entry(memoryview(bytes(50)))
    assert (tally.missing, tally.repeated, tally.others) == (1, 1, 1)


def test_an_entry_says_how_many_messages_it_has() -> None:
    assert messages_in(memoryview(Shape(100).send(0, 1, 2))) == 1
    assert messages_in(memoryview(Shape(100, 7).send(0, 1, 2))) == 7


def test_a_killed_bookkeeper_has_what_is_behind_its_mark(tmp_path: Path) -> None:
    (tmp_path / "lastMark").write_bytes(struct.pack(">QQ", 0, 0))
    (tmp_path / "a.txn").write_bytes(b"x" * 1_000 + bytes(2**21))
    (tmp_path / "b.txn").write_bytes(b"x" * 500 + bytes(100))
    assert bookkeeper_bytes_held(tmp_path) == 1_500
    (tmp_path / "lastMark").write_bytes(struct.pack(">QQ", 0xA, 600))
    assert bookkeeper_bytes_held(tmp_path) == 900
    (tmp_path / "lastMark").write_bytes(struct.pack(">QQ", 0xB, 100))
    assert bookkeeper_bytes_held(tmp_path) == 400
