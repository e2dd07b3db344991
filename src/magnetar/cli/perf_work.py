# SPDX-License-Identifier: Apache-2.0
"""The work of a load test: producers on their schedules, consumers, readers, and when it is over.

Carries.
"""

import asyncio
import sys
from collections.abc import Coroutine
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.pace import Pace
from magnetar.cli.perf_report import Counts, show_result, write_histogram
from magnetar.cli.perf_transactions import transactors
from magnetar.cli.values import WrongUse, number_of
from magnetar.cli.words import Given
from magnetar.client.client import Client
from magnetar.client.encryption import KeyFiles
from magnetar.client.options import CompressionType, ConsumerType, InitialPosition, ProducerAccessMode
from magnetar.errors import MagnetarError
from magnetar.ids import EARLIEST_MESSAGE, LATEST_MESSAGE, MessageId
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import Tasks

STATS_INTERVAL_S: Final = 10
PAYLOAD_FILE_BYTES_MAX: Final = 1 << 28
_VERBS: Final = {"produce": "published", "consume": "received", "read": "read", "transaction": "ended"}
_COMPRESSIONS: Final = {
    "NONE": CompressionType.NONE,
    "LZ4": CompressionType.LZ4,
    "ZLIB": CompressionType.ZLib,
    "ZSTD": CompressionType.ZSTD,
    "SNAPPY": CompressionType.SNAPPY,
}


class LoadTest:
    """What a test counts, how many more may be begun, and whether it is over."""

    def __init__(self, client: Client, given: Given, name: str) -> None:
        self.client = client
        self.given = given
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.clock = SystemClock()
        self.counts = Counts(self.loop.time())
        self.over = asyncio.Event()
        self.error: MagnetarError | None = None
        # How many there should be in all; 0: any number.
        self._wanted: int = given["number_txn" if name == "transaction" else "num_messages"]
        self._left: int | None = self._wanted or None
        self._finished = 0

    @property
    def unit(self) -> str:
        return "transactions" if self.name == "transaction" else "messages"

    def take(self) -> bool:
        """Whether one more may be begun."""
        if self._left is None:
            return True
        if self._left == 0:
            return False
        self._left -= 1
        return True

    def note(self, size: int, latency_s: float) -> None:
        if self._wanted and self._finished >= self._wanted:
            # What came after the last one that was asked for is not counted.
            return
        self.counts.add(size, round(latency_s * 1_000_000))
        self._finish()

    def note_failure(self, error: BaseException) -> None:
        self.counts.failures += 1
        if self.given.get("exit_on_failure"):
            self.error = error if isinstance(error, MagnetarError) else None
            self.over.set()
        self._finish()

    def _finish(self) -> None:
        self._finished += 1
        if self._wanted and self._finished >= self._wanted:
            self.over.set()

    async def guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Work whose error ends the test."""
        try:
            await work
        except MagnetarError as error:
            self.error = error
            self.over.set()

    async def watch(self) -> None:
        """Restart the counts after the warm-up, then show a line now and then."""
        warm_up_s = self.given.get("warmup_time", 0.0) if self.given["test_duration"] else 0.0
        if warm_up_s:
            await asyncio.sleep(warm_up_s)
            self.counts.restart(self.loop.time())
        interval_s = self.given["stats_interval_seconds"] or STATS_INTERVAL_S
        while True:
            await asyncio.sleep(interval_s)
            line = self.counts.line(_VERBS[self.name], self.loop.time(), unit=self.unit)
            if not self.given["json"]:
                sys.stdout.write(line + "\n")
                sys.stdout.flush()


async def load_test(client: Client, given: Given, name: str, topics: list[str]) -> int:
    """Run it until its time, its number of messages or its patience is over, and show the result."""
    test = LoadTest(client, given, name)
    tasks = Tasks("perf", lambda task, error: test.over.set())
    make = {"produce": _producers, "consume": _consumers, "read": _readers, "transaction": transactors}[name]
    works = await make(test, topics)
    tasks.start(test.watch(), "watch")
    for number, work in enumerate(works):
        tasks.start(test.guarded(work), f"{name} {number}")
    limit_s = given["test_duration"] or None
    if limit_s is not None:
        limit_s += given.get("warmup_time", 0.0)
    try:
        async with asyncio.timeout(limit_s):
            await test.over.wait()
    except TimeoutError:
        pass
    result = test.counts.result(test.loop.time())
    await tasks.close()
    if test.error is not None:
        raise test.error
    show_result(_VERBS[name], result, unit=test.unit, as_json=given["json"])
    if given.get("histogram_file"):
        write_histogram(given["histogram_file"], test.counts.latencies)
    return exits.REFUSED if test.counts.failures else exits.OK


# --- producing -----------------------------------------------------------------------------------


def _producer_options(given: Given) -> dict[str, Any]:
    options: dict[str, Any] = {
        "block_if_queue_full": True,
        "send_timeout_millis": given["send_timeout"] * 1000,
        "batching_enabled": not given["disable_batching"] and not given["chunking"],
        "batching_max_publish_delay_ms": max(1, round(given["batch_time_window"])),
        "batching_max_messages": given["batch_max_messages"],
        "batching_max_allowed_size_in_bytes": given["batch_max_bytes"],
        "chunking_enabled": given["chunking"],
        "compression_type": _COMPRESSIONS[given["compression"]],
        "access_mode": ProducerAccessMode[given["access_mode"]],
    }
    if given["max_outstanding"]:
        options["max_pending_messages"] = given["max_outstanding"]
    if given["max_outstanding_across_partitions"]:
        options["max_pending_messages_across_partitions"] = given["max_outstanding_across_partitions"]
    if given["encryption_key_name"]:
        options["encryption_key"] = given["encryption_key_name"]
        options["crypto_key_reader"] = KeyFiles(public_key_path=given["encryption_key_value_file"])
    return options


async def _producers(test: LoadTest, topics: list[str]) -> list[Coroutine[Any, Any, None]]:
    given, options = test.given, _producer_options(test.given)
    if given["num_producers"] < 1:
        raise WrongUse("--num-producers should be at least 1")
    random = stream(fresh_seed(), "perf")
    payloads = _payloads(given, random)
    made = []
    for topic in topics:
        for number in range(given["num_producers"]):
            name = given["producer_name"] and f"{given['producer_name']}-{number}"
            made.append(await test.client.create_producer(topic, producer_name=name, **options))
    rate = given["rate"] / len(made)
    # All start together: their schedules count from when the last one is attached.
    start_s = test.loop.time()
    return [_produce(test, each, Pace(rate, start_s), payloads, random) for each in made]


async def _produce(test: LoadTest, producer: Any, pace: Pace, payloads: list[bytes], random: Random) -> None:
    given, loop = test.given, test.loop
    number = 0
    transaction: Any = None
    in_transaction = 0
    while test.take():
        due_s = pace.next_due_s(loop.time())
        if due_s > loop.time():
            await asyncio.sleep(due_s - loop.time())
        elif number % 64 == 0:
            await asyncio.sleep(0)
        if given["txn_enable"] and transaction is None:
            transaction = await test.client.new_transaction(given["txn_timeout"] * 1000)
        payload = payloads[0] if len(payloads) == 1 else payloads[random.randrange(len(payloads))]
        if given["format_payload"]:
            payload = _formatted(payload, number, test.clock.now_ms())
        receipt = await producer.submit(
            payload,
            partition_key=_key(given, number, random),
            event_timestamp=test.clock.now_ms() if given["set_event_time"] else None,
            deliver_after=_delay(given, random),
            txn=transaction,
        )
        receipt.add_done_callback(partial(_on_receipt, test, due_s, len(payload)))
        number += 1
        in_transaction += 1
        if transaction is not None and in_transaction >= given["numMessage_perTransaction"]:
            await (transaction.abort() if given["abort"] else transaction.commit())
            transaction, in_transaction = None, 0
    await producer.flush()


def _on_receipt(test: LoadTest, due_s: float, size: int, receipt: Any) -> None:
    error = receipt.exception()
    if error is not None:
        test.note_failure(error)
    else:
        test.note(size, test.loop.time() - due_s)


def _payloads(given: Given, random: Random) -> list[bytes]:
    if given["payload_file"] is None:
        return [random.randbytes(given["size"])]
    delimiter = given["payload_delimiter"].encode().decode("unicode_escape")
    try:
        path = Path(given["payload_file"])
        if path.stat().st_size > PAYLOAD_FILE_BYTES_MAX:
            raise WrongUse(f"{path} is larger than {PAYLOAD_FILE_BYTES_MAX} bytes")
        texts = path.read_text(encoding="utf-8").split(delimiter)
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{given['payload_file']} cannot be read: {error}") from None
    return [text.encode() for text in texts if text] or [b""]


def _formatted(payload: bytes, number: int, now_ms: int) -> bytes:
    return payload.replace(b"%i", str(number).encode()).replace(b"%t", str(now_ms * 1_000_000).encode())


def _key(given: Given, number: int, random: Random) -> str | None:
    mode = given["message_key_generation_mode"]
    if mode is None:
        return None
    return str(number) if mode == "autoIncrement" else str(random.getrandbits(31))


def _delay(given: Given, random: Random) -> timedelta | None:
    if given["delay_range"] is not None:
        low, _, high = given["delay_range"].partition(",")
        return timedelta(seconds=random.uniform(number_of(low), number_of(high or low)))
    return timedelta(seconds=given["delay"]) if given["delay"] > 0 else None


# --- receiving -----------------------------------------------------------------------------------


async def _consumers(test: LoadTest, topics: list[str]) -> list[Coroutine[Any, Any, None]]:
    given = test.given
    options: dict[str, Any] = {
        "consumer_type": ConsumerType[given["subscription_type"].replace("_", "")],
        "initial_position": InitialPosition[given["subscription_position"]],
        "receiver_queue_size": given["receiver_queue_size"],
        "max_total_receiver_queue_size_across_partitions": given["receiver_queue_size_across_partitions"],
        "replicate_subscription_state_enabled": given["replicated"],
        "ack_group_time_ms": given["acks_delay_millis"],
        "auto_ack_oldest_chunked_message_on_queue_full": given["auto_ack_chunk_q_full"],
        "batch_index_ack_enabled": given["batch_index_ack"],
    }
    if given["max_chunked_msg"]:
        options["max_pending_chunked_message"] = given["max_chunked_msg"]
    if given["expire_time_incomplete_chunked_messages"]:
        options["expire_time_of_incomplete_chunked_message_ms"] = given["expire_time_incomplete_chunked_messages"]
    if given["encryption_key_value_file"]:
        options["crypto_key_reader"] = KeyFiles(private_key_path=given["encryption_key_value_file"])
    names = given["subscriptions"]
    if len(names) == 1 and given["num_subscriptions"] > 1:
        names = [f"{names[0]}-{number}" for number in range(given["num_subscriptions"])]
    made = [
        await test.client.subscribe(topic, name, **options)
        for topic in topics
        for name in names
        for _ in range(given["num_consumers"])
    ]
    return [_consume(test, each, Pace(given["rate"] / len(made), test.loop.time())) for each in made]


async def _consume(test: LoadTest, consumer: Any, pace: Pace) -> None:
    given = test.given
    transaction: Any = None
    in_transaction = transactions = 0
    while True:
        await _slow_down(test, pace)
        message = await consumer.receive()
        if given["txn_enable"] and transaction is None:
            transaction = await test.client.new_transaction(given["txn_timeout"] * 1000)
        await consumer.acknowledge(message, txn=transaction)
        test.note(message.size(), (test.clock.now_ms() - message.publish_timestamp()) / 1000)
        in_transaction += 1
        if transaction is not None and in_transaction >= given["numMessage_perTransaction"]:
            await (transaction.abort() if given["abort"] else transaction.commit())
            transaction, in_transaction, transactions = None, 0, transactions + 1
            if given["ntxn"] and transactions >= given["ntxn"]:
                test.over.set()


async def _readers(test: LoadTest, topics: list[str]) -> list[Coroutine[Any, Any, None]]:
    given = test.given
    start = {"earliest": EARLIEST_MESSAGE, "latest": LATEST_MESSAGE}.get(given["start_message_id"])
    if start is None:
        ledger, _, entry = given["start_message_id"].partition(":")
        start = MessageId(number_of(ledger), number_of(entry))
    size = given["receiver_queue_size"]
    made = [await test.client.create_reader(topic, start, receiver_queue_size=size) for topic in topics]
    return [_read(test, each, Pace(given["rate"] / len(made), test.loop.time())) for each in made]


async def _read(test: LoadTest, reader: Any, pace: Pace) -> None:
    while True:
        await _slow_down(test, pace)
        message = await reader.read_next()
        test.note(message.size(), (test.clock.now_ms() - message.publish_timestamp()) / 1000)


async def _slow_down(test: LoadTest, pace: Pace) -> None:
    due_s = pace.next_due_s(test.loop.time())
    if due_s > test.loop.time():
        await asyncio.sleep(due_s - test.loop.time())
