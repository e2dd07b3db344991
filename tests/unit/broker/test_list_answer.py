# SPDX-License-Identifier: Apache-2.0
"""A list of topics that is made in slices is the one that would be made in one go, and lets others have their turn."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.session import list_answer
from magnetar.broker.session.list_answer import list_parts, names_of, sliced_hash
from magnetar.broker.topic_list import hash_of
from magnetar.names import NamespaceName
from magnetar.wire import commands
from magnetar.wire.proto import pulsar_api_pb2 as pb

NAMESPACE = NamespaceName("public", "default")


@given(names=st.lists(st.text("abc,/é", max_size=5), max_size=12), slice_max=st.integers(1, 5))
def test_slices_are_the_whole(names: list[str], slice_max: int) -> None:
    async def scenario() -> None:
        assert await sliced_hash(names) == hash_of(names)
        answer = pb.CommandGetTopicsOfNamespaceResponse(
            request_id=7, filtered=True, topics_hash="abc", changed=bool(names)
        )
        parts = await list_parts(answer, names)
        answer.topics.extend(names)
        kind = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
        frame = b"".join(commands.encode_parts(kind, parts))
        assert len(frame) == len(commands.encode(kind, answer))
        command = commands.parse(frame[8:], commands.Sender.BROKER)
        assert commands.body_of(command) == answer
        assert frame[:8] == commands.encode(kind, answer)[:8]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_answer, "SLICE", slice_max)
        asyncio.run(scenario())


def test_others_have_their_turn() -> None:
    """Whatever the list, every slice of it ends a turn of the loop."""

    async def scenario() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        topics = [NAMESPACE.topic(f"t-{number}") for number in range(10 * list_answer.SLICE)]
        names = await names_of(topics)
        await sliced_hash(names)
        await list_parts(pb.CommandGetTopicsOfNamespaceResponse(request_id=1), names)
        other.cancel()
        return turns

    assert asyncio.run(scenario()) >= 30
