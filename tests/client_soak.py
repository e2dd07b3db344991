# SPDX-License-Identifier: Apache-2.0
"""What only shows after many rounds: forks with live producers, and what a client leaves behind life after life.

    python -m tests.client_soak [--rounds N]

`make client-soak` runs a thousand of each; tests run a few. Everything is asserted by counting: messages, sockets,
tasks, and objects that the collector knows. Never by time or by resident memory, which others share.
"""

import argparse
import asyncio
import gc
import os
import sys
import threading
from collections import Counter
from typing import Any

from magnetar import Client, blocking
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerType
from magnetar.errors import AlreadyClosed
from magnetar.testing import LocalPulsar, ThreadedPulsar

OWN_CLIENT_EVERY = 10
CHILD_OK, CHILD_SENT, CHILD_FAILED = 0, 10, 20


def fork_with_live_producers(rounds: int) -> None:
    """A parent that sends all the time forks; a child is told that nothing here is its own, and makes its own."""
    with ThreadedPulsar() as pulsar, blocking.Client(pulsar.service_url) as client:
        producer = client.create_producer("parent", block_if_queue_full=True)
        sent: list[bytes] = []
        stop = threading.Event()

        def send() -> None:
            while not stop.is_set():
                content = b"%d" % len(sent)
                producer.send(content)
                sent.append(content)

        sender = threading.Thread(target=send)
        sender.start()
        children = 0
        try:
            for number in range(rounds):
                makes_own = number % OWN_CLIENT_EVERY == 0
                pid = os.fork()
                if pid == 0:
                    os._exit(_child(pulsar.service_url, client, producer, makes_own))
                outcome = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                assert outcome == CHILD_OK, f"child {number} ended with {outcome}"
                children += makes_own
        finally:
            stop.set()
            sender.join()
        reader = client.create_reader("parent", MessageId.earliest)
        stored = [reader.read_next(20_000).data() for _ in range(len(sent))]
        assert stored == sent, "what the parent sent is there once and in order"
        assert not reader.has_message_available()
        reader = client.create_reader("children", MessageId.earliest)
        assert len([reader.read_next(20_000) for _ in range(children)]) == children


def _child(url: str, client: "blocking.Client", producer: "blocking.Producer[bytes]", makes_own: bool) -> int:
    try:
        for forbidden in (lambda: producer.send(b"from a child"), lambda: client.create_producer("t")):
            try:
                forbidden()
            except AlreadyClosed:
                continue
            return CHILD_SENT
        client.close()
        if makes_own:
            with blocking.Client(url) as own:
                own.create_producer("children").send(b"x")
    except BaseException as error:
        sys.stderr.write(f"child: {error!r}\n")
        return CHILD_FAILED
    return CHILD_OK


def live_many_lives(rounds: int) -> None:
    """Clients come, work and go; what is counted after the first lives is what is counted after the last."""

    async def scenario() -> None:
        async with LocalPulsar(settings={"brokerDeleteInactiveTopicsEnabled": "false"}) as pulsar:
            seen: list[tuple[int, int, Counter[str]]] = []
            for number in range(rounds + 5):
                await _one_life(pulsar, number)
                if number in (4, rounds + 4):
                    seen.append(_census())
            (sockets, tasks, objects), (last_sockets, last_tasks, last_objects) = seen
            assert last_sockets == sockets, f"{last_sockets - sockets} files and sockets are left"
            assert last_tasks == tasks, f"{last_tasks - tasks} tasks are left"
            grown = {name: count for name, count in (last_objects - objects).items() if count > max(20, rounds // 2)}
            assert not grown, f"left after {rounds} lives: {grown}"

    asyncio.run(scenario())


async def _one_life(pulsar: LocalPulsar, number: int) -> None:
    async with Client(pulsar.service_url) as client:
        consumer = await client.subscribe(
            "t", "s", consumer_type=ConsumerType.Shared, unacked_messages_timeout_ms=10_000
        )
        producer = await client.create_producer("t", batching_enabled=number % 2 == 0)
        for _ in range(20):
            await producer.submit(b"x")
        await producer.flush()
        if number % 3 == 0:
            pulsar.drop_connections()
        for _ in range(20):
            await consumer.acknowledge(await consumer.receive(20_000))
        reader = await client.create_reader("t", MessageId.latest)
        await reader.close()
        # Left for the client to close.
        await client.create_producer("t")
    for _ in range(5):
        await asyncio.sleep(0)


def _census() -> tuple[int, int, Counter[str]]:
    gc.collect()
    kinds: Counter[str] = Counter(
        type(each).__qualname__ for each in gc.get_objects() if str(type(each).__module__).startswith("magnetar.client")
    )
    # A cancelled timer stays with the loop until its time, or until there are too many of them.
    kinds.update(
        type(each).__qualname__
        for each in gc.get_objects()
        if isinstance(each, asyncio.Future) or (isinstance(each, asyncio.Handle) and not each.cancelled())
    )
    return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), kinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000)
    rounds: Any = parser.parse_args().rounds
    live_many_lives(rounds)
    sys.stdout.write(f"{rounds} lives of a client left nothing behind\n")
    fork_with_live_producers(rounds)
    sys.stdout.write(f"{rounds} forks with a live producer harmed neither side\n")


if __name__ == "__main__":
    main()
