# SPDX-License-Identifier: Apache-2.0
"""The client's readers and table views against a real broker."""

import pytest

from magnetar import Client, CompressionType, MessageId
from magnetar.client.schema import STRING
from magnetar.errors import TimedOut
from tests.conformance.client_service import Service, run, service, until

__all__ = ["service"]


async def publish(client: Client, topic: str, count: int, *, batch: bool = False) -> list[MessageId]:
    async with await client.create_producer(
        topic, batching_enabled=batch, batching_max_publish_delay_ms=10_000, compression_type=CompressionType.ZSTD
    ) as producer:
        receipts = [await producer.submit(str(number).encode()) for number in range(count)]
        await producer.flush()
        return [receipt.result() for receipt in receipts]


@pytest.mark.feature("F-RDR-01", "F-RDR-02")
@pytest.mark.parametrize("batch", [False, True])
def test_a_reader_reads_from_the_beginning_to_the_end(service: Service, batch: bool) -> None:
    async def test() -> None:
        topic = service.topic("reader")
        async with Client(service.url) as client:
            ids = await publish(client, topic, 50, batch=batch)
            async with await client.create_reader(topic, MessageId.earliest) as reader:
                read = []
                while await reader.has_message_available():
                    read.append(await reader.read_next(20_000))
                assert [message.message_id() for message in read] == ids
                assert [int(message.data()) for message in read] == list(range(50))
                with pytest.raises(TimedOut):
                    await reader.read_next(50)

    run(test())


@pytest.mark.feature("F-RDR-02", "F-RDR-04")
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("inclusive", [False, True])
def test_a_reader_goes_on_from_a_stored_id(service: Service, batch: bool, inclusive: bool) -> None:
    async def test() -> None:
        topic = service.topic("stored-id")
        async with Client(service.url) as client:
            ids = await publish(client, topic, 10, batch=batch)
            stored = MessageId.deserialize(ids[6].serialize())
            reader = await client.create_reader(topic, stored, start_message_id_inclusive=inclusive)
            read = []
            while await reader.has_message_available():
                read.append(int((await reader.read_next(20_000)).data()))
            assert read == list(range(6 if inclusive else 7, 10))

    run(test())


@pytest.mark.feature("F-RDR-02")
@pytest.mark.parametrize("batch", [False, True])
def test_a_reader_at_the_end_sees_new_messages_only(service: Service, batch: bool) -> None:
    async def test() -> None:
        topic = service.topic("latest")
        async with Client(service.url) as client:
            await publish(client, topic, 5, batch=batch)
            reader = await client.create_reader(topic, MessageId.latest)
            inclusive = await client.create_reader(topic, MessageId.latest, start_message_id_inclusive=True)
            assert not await reader.has_message_available()
            assert await inclusive.has_message_available()
            assert (await inclusive.read_next(20_000)).data() == b"4"
            assert not await inclusive.has_message_available()
            await publish(client, topic, 1)
            assert await reader.has_message_available()
            assert (await reader.read_next(20_000)).data() == b"0"
            assert not await reader.has_message_available()

    run(test())


@pytest.mark.feature("F-RDR-03")
def test_a_reader_seeks(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("reader-seek")
        async with Client(service.url) as client:
            ids = await publish(client, topic, 10)
            reader = await client.create_reader(topic, MessageId.earliest)
            messages = [await reader.read_next(20_000) for _ in range(10)]
            await reader.seek(ids[3])
            assert (await reader.read_next(20_000)).data() == b"4"
            await reader.seek(messages[0].publish_timestamp())
            assert (await reader.read_next(20_000)).data() == b"0"
            await reader.seek(MessageId.latest)
            assert not await reader.has_message_available()
            await reader.seek(MessageId.earliest)
            assert await reader.has_message_available()

    run(test())


def test_a_reader_of_partitions_reads_them_all(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("reader-partitions")
        service.create_partitions(topic, 3)
        async with Client(service.url) as client:
            await publish(client, topic, 30)
            reader = await client.create_reader(topic, MessageId.earliest)
            read = set()
            while await reader.has_message_available():
                read.add(int((await reader.read_next(20_000)).data()))
            assert read == set(range(30))

    run(test())


@pytest.mark.feature("F-RDR-06", "B-31")
def test_a_table_view_has_the_latest_value_of_each_key(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("table")
        async with Client(service.url) as client:
            producer = await client.create_producer(topic, schema=STRING)
            for number in range(30):
                await producer.send(f"v{number}", partition_key=f"k{number % 3}")
            async with await client.create_table_view(topic, schema=STRING) as view:
                assert dict(view.items()) == {"k0": "v27", "k1": "v28", "k2": "v29"}
                changes: list[tuple[str, str | None]] = []
                view.for_each_and_listen(lambda key, value: changes.append((key, value)))
                assert sorted(changes) == [("k0", "v27"), ("k1", "v28"), ("k2", "v29")]
                await producer.send("new", partition_key="k3")
                await producer.send(None, partition_key="k0")
                await view.refresh()
                assert ("k0" in view, view.get("k3"), len(view)) == (False, "new", 3)
                await until(lambda: changes[-2:] == [("k3", "new"), ("k0", None)])

    run(test())


def test_an_empty_topic_is_an_empty_table(service: Service) -> None:
    async def test() -> None:
        async with Client(service.url) as client, await client.create_table_view(service.topic("empty")) as view:
            assert len(view) == 0
            await view.refresh()

    run(test())
