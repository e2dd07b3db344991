# SPDX-License-Identifier: Apache-2.0
"""GET_TOPICS_OF_NAMESPACE, WATCH_TOPIC_LIST and its end: which topics there are, and which come and go.

Carries.
"""

import asyncio
import contextlib

from magnetar.broker.list_budget import ListHold
from magnetar.broker.session.list_answer import list_parts, names_of, sliced_hash
from magnetar.broker.session.session import Session
from magnetar.broker.topic_list import ListChange, ListMode, TopicPattern
from magnetar.broker.topic_watches import matching
from magnetar.errors import NotSupported, ServiceNotReady, TooManyRequests
from magnetar.names import NamespaceName
from magnetar.wire import commands
from magnetar.wire.proto import pulsar_api_pb2 as pb


async def topics_of_namespace(session: Session, request: pb.CommandGetTopicsOfNamespace) -> None:
    """A pattern that is too long is left to the client, which filters by itself what was not filtered."""
    namespace = NamespaceName.parse(request.namespace)
    async with session.list_turn:
        await session.connection.until_writable()
        async with session.broker.topics.list_budget.holding(namespace) as hold:
            await _answer_list(session, request, namespace, hold)
            # What a client does not read is in memory, and is counted; not for ever, or it would stop all others.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(session.broker.settings.list_wait_ms / 1000):
                    await session.connection.until_writable()


async def _answer_list(
    session: Session, request: pb.CommandGetTopicsOfNamespace, namespace: NamespaceName, hold: ListHold
) -> None:
    topics = await session.broker.topics.visible_names(namespace, ListMode(request.mode))
    is_filtered = 0 < len(request.topics_pattern) <= session.broker.settings.topic_pattern_characters_max
    names = await (matching(TopicPattern(request.topics_pattern), topics) if is_filtered else names_of(topics))
    hold.made(names)
    topics_hash = await sliced_hash(names)
    is_changed = request.topics_hash != topics_hash
    answer = pb.CommandGetTopicsOfNamespaceResponse(
        request_id=request.request_id, filtered=is_filtered, topics_hash=topics_hash, changed=is_changed
    )
    parts = await list_parts(answer, names if is_changed else ())
    frame = commands.encode_parts(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, parts)
    session.connection.send_all(frame, sum(map(len, frame)))


async def watch_topic_list(session: Session, request: pb.CommandWatchTopicList) -> None:
    settings = session.broker.settings
    watcher_id = request.watcher_id
    if watcher_id in session.topic_watches:
        raise ServiceNotReady(f"Watcher {watcher_id} is already present on the connection")
    if len(session.topic_watches) >= settings.topic_watchers_per_connection_max:
        raise TooManyRequests(f"This connection has {len(session.topic_watches)} topic watchers already")
    if len(request.topics_pattern) > settings.topic_pattern_characters_max:
        raise NotSupported(
            f"The topic pattern is longer than {settings.topic_pattern_characters_max} characters; poll instead"
        )
    namespace = NamespaceName.parse(request.namespace)
    pattern = TopicPattern(request.topics_pattern)
    is_answered = False

    def on_changed(change: ListChange, topics_hash: str) -> None:
        # What changes before the answer is part of it.
        if is_answered:
            _tell(session, watcher_id, change, topics_hash)

    async with session.list_turn:
        await session.connection.until_writable()
        watch = await session.broker.topics.watches.watch(namespace, pattern, on_changed, session.is_writable)
    if watcher_id in session.topic_watches or not session.connection.is_open:
        watch.close()
        raise ServiceNotReady(f"Watcher {watcher_id} was closed or opened twice meanwhile")
    session.topic_watches[watcher_id] = watch
    is_changed = request.topics_hash != watch.view.hash
    session.answer(
        pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
        pb.CommandWatchTopicListSuccess(
            request_id=request.request_id,
            watcher_id=watcher_id,
            topic=watch.view.names if is_changed else (),
            topics_hash=watch.view.hash,
        ),
    )
    is_answered = True


async def watch_topic_list_close(session: Session, request: pb.CommandWatchTopicListClose) -> None:
    watch = session.topic_watches.pop(request.watcher_id, None)
    if watch is not None:
        watch.close()
    session.succeed(request.request_id)


def _tell(session: Session, watcher_id: int, change: ListChange, topics_hash: str) -> None:
    session.answer(
        pb.BaseCommand.WATCH_TOPIC_UPDATE,
        pb.CommandWatchTopicUpdate(
            watcher_id=watcher_id, new_topics=change.new, deleted_topics=change.deleted, topics_hash=topics_hash
        ),
    )
