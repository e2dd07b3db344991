# SPDX-License-Identifier: Apache-2.0
"""Large numbers on real processes: topics on one broker, subscriptions of one topic, holes of one cursor.

Small here, to see that it works; `make scale` (SCALE=full) runs the full numbers and prints what each costs.
"""

import asyncio
import os
import random
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from magnetar.wire import commands, frame
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw_client import RawClient, Type, body
from tests.processes import StandaloneProcess

FULL = os.environ.get("SCALE") == "full"
TOPICS = 10_000 if FULL else 100
SUBSCRIPTIONS = 1_000 if FULL else 50
HOLES = 1_000_000 if FULL else 5_000
MANY_CURSORS = 10_000 if FULL else 100
HOLES_EACH = 1_000 if FULL else 50
# Memory of one of many, at most; and what the first of a kind may take for all that follow.
EACH_KIB = 150
ONCE_KIB = 64 * 1024
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
LONG = pytest.mark.timeout(3600 if FULL else 300)


def resident_kib(process: StandaloneProcess) -> int:
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("the process has no VmRSS")


def say(text: str) -> None:
    if FULL:
        sys.stdout.write(f"\nscale: {text}\n")
        sys.stdout.flush()


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


@LONG
@pytest.mark.feature("F-PLAT-07")
def test_many_topics_are_served_at_once_and_after_a_restart(tmp_path: Path) -> None:
    """Every topic takes a message and keeps it; their number costs memory, not files."""
    with StandaloneProcess(tmp_path) as process, RawClient(process.port) as raw:
        before = resident_kib(process)
        files = _files(process)
        for number in range(TOPICS):
            answer = raw.open_producer(f"persistent://public/default/t{number}", producer_id=number)
            assert answer.type == Type.PRODUCER_SUCCESS, answer
        for number in range(TOPICS):
            raw.send(number, sequence_id=0)
        for _ in range(TOPICS):
            raw.expect(Type.SEND_RECEIPT)
        per_topic = (resident_kib(process) - before) / TOPICS
        say(f"{TOPICS} topics with a producer and a message: {per_topic:.1f} KiB of memory each")
        assert per_topic < EACH_KIB + ONCE_KIB / TOPICS
        assert _files(process) - files < 20 + TOPICS // 100, "no file per topic"
        raw.close()
        process.kill()
        process.start()
        client = pulsar.Client(process.service_url, logger=QUIET)
        for number in random.Random(1).sample(range(TOPICS), 20):
            reader = client.create_reader(f"t{number}", pulsar.MessageId.earliest)
            assert reader.read_next(20_000).data() == b"payload"
            reader.close()
        client.close()


def _files(process: StandaloneProcess) -> int:
    return sum(1 for path in process.data_directory.rglob("*") if path.is_file())


@LONG
@pytest.mark.feature("F-PRB-17")
def test_many_subscriptions_of_one_topic_all_get_everything(tmp_path: Path) -> None:
    topic = "persistent://public/default/fan-out"
    with StandaloneProcess(tmp_path) as process, RawClient(process.port) as raw:
        raw.open_producer(topic, producer_id=1)
        before = resident_kib(process)
        for number in range(SUBSCRIPTIONS):
            request_id = raw.request_id()
            subscribe = pb.CommandSubscribe(
                topic=topic,
                subscription=f"s{number}",
                subType=pb.CommandSubscribe.Shared,
                consumer_id=number,
                request_id=request_id,
                initialPosition=pb.CommandSubscribe.Earliest,
            )
            raw.say(Type.SUBSCRIBE, subscribe)
            assert raw.answer_to(request_id).type == Type.SUCCESS
            raw.say(Type.FLOW, pb.CommandFlow(consumer_id=number, messagePermits=10))
        per_subscription = (resident_kib(process) - before) / SUBSCRIPTIONS
        say(f"{SUBSCRIPTIONS} subscriptions with a consumer: {per_subscription:.1f} KiB of memory each")
        assert per_subscription < EACH_KIB + ONCE_KIB / SUBSCRIPTIONS
        for sequence_id in range(3):
            raw.send(1, sequence_id=sequence_id)
        left = dict.fromkeys(range(SUBSCRIPTIONS), 3)
        while any(left.values()):
            command = raw.next()
            assert command is not None
            if command.type == Type.MESSAGE:
                left[command.message.consumer_id] -= 1
                ack = pb.CommandAck(consumer_id=command.message.consumer_id, ack_type=pb.CommandAck.Individual)
                ack.message_id.append(command.message.message_id)
                raw.say(Type.ACK, ack)
        assert set(left.values()) == {0}
        raw.close()
        process.stop(120)
        process.start()
        with httpx.Client(base_url=f"{process.web_url}/admin/v2", timeout=120) as admin:
            stats = admin.get("/persistent/public/default/fan-out/stats").json()["subscriptions"]
        assert len(stats) == SUBSCRIPTIONS
        assert {each["msgBacklog"] for each in stats.values()} == {0}


@LONG
@pytest.mark.feature("B-25", "F-PRB-17")
def test_a_cursor_with_very_many_holes_comes_back_with_all_of_them(tmp_path: Path) -> None:
    """F103: every second entry is acknowledged: as many holes as acks, none of which is lost by a restart."""
    topic = "persistent://public/default/holes"
    with StandaloneProcess(tmp_path) as process, RawClient(process.port) as raw:
        raw.open_producer(topic, producer_id=1)
        send = commands.wrap(Type.SEND, pb.CommandSend(producer_id=1, sequence_id=0)).SerializeToString()
        frame_of_one = frame.join(send, body(payload=b"x"))
        positions: list[tuple[int, int]] = []
        for start in range(0, 2 * HOLES, 1_000):
            count = min(1_000, 2 * HOLES - start)
            raw.say_bytes(frame_of_one * count)
            for _ in range(count):
                found = raw.expect(Type.SEND_RECEIPT).send_receipt.message_id
                positions.append((found.ledgerId, found.entryId))
        request_id = raw.request_id()
        subscribe = pb.CommandSubscribe(
            topic=topic,
            subscription="s",
            subType=pb.CommandSubscribe.Shared,
            consumer_id=1,
            request_id=request_id,
            initialPosition=pb.CommandSubscribe.Earliest,
        )
        raw.say(Type.SUBSCRIBE, subscribe)
        raw.answer_to(request_id)
        before = resident_kib(process)
        for start in range(1, len(positions), 10_000):
            ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=raw.request_id())
            for ledger_id, entry_id in positions[start : start + 10_000 : 2]:
                ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
            raw.say(Type.ACK, ack)
            assert not raw.expect(Type.ACK_RESPONSE).ackResponse.HasField("error")
        say(f"{HOLES} holes of one cursor: {resident_kib(process) - before} KiB of memory")
        raw.close()
        assert process.stop(300) == 0
        process.start()
        with httpx.Client(base_url=f"{process.web_url}/admin/v2", timeout=300) as admin:
            stats = admin.get("/persistent/public/default/holes/stats").json()["subscriptions"]["s"]
        assert stats["msgBacklog"] == HOLES
        assert stats["nonContiguousDeletedMessagesRanges"] == HOLES


@LONG
@pytest.mark.feature("F-PRB-17")
def test_very_many_cursors_with_many_holes_each_are_all_saved(tmp_path: Path) -> None:
    """In one process with real storage on disk: opening, acking and saving goes through, and so does the next owner."""
    from tests.unit.managed_ledger.owners import World

    async def main() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        owner.publisher.append_many(2 * HOLES_EACH)
        await owner.publisher.rest()
        positions = sorted(owner.publisher.persisted)
        for number in range(MANY_CURSORS):
            cursor = await ledger.open_cursor(f"s{number}", initial="earliest")
            cursor.ack_all(positions[1::2])
            if number % 100 == 0:
                await cursor.flush()
        await owner.close()
        successor = world.owner()
        again = await successor.open()
        assert len(again.cursors) == MANY_CURSORS
        assert {cursor.backlog_entries() for cursor in again.cursors.values()} == {HOLES_EACH}
        await successor.close()
        world.check()

    run(main())
