# SPDX-License-Identifier: Apache-2.0
"""Deleting a namespace with everything in it: each topic by its owner, with its producers and consumers, then the rest.

Only where the operator has allowed it. What cannot be deleted stops it; what is gone by then stays gone.
Carries.
"""

from collections.abc import AsyncIterator
from typing import Final

from fastapi import Request, Response

from magnetar.admin.answers import AdminRefused
from magnetar.admin.at_owner import AnsweredElsewhereError
from magnetar.admin.parts import AdminParts
from magnetar.broker.topic_list import ListMode
from magnetar.errors import NoRecord
from magnetar.names import NamespaceName, TopicDomain, TopicName, encode_name

# Clients make topics while others are deleted: after so many rounds their producers have to be stopped first.
_ROUNDS_MAX: Final = 3


async def empty_namespace(request: Request, parts: AdminParts, namespace: NamespaceName) -> None:
    """AnsweredElsewhereError with the first refusal; 409 when topics come faster than they go."""
    for _ in range(_ROUNDS_MAX):
        async for topic, is_partitioned in _all_topics(parts, namespace):
            path = f"/admin/v2/{topic.domain}/{namespace}/{encode_name(topic.local_name)}"
            whole = path + "/partitions" if is_partitioned else path
            answer = await parts.peers.ask(request, topic, "DELETE", whole, force="true")
            if answer.status_code >= 300 and answer.status_code != 404:
                raise AnsweredElsewhereError(
                    Response(answer.content, answer.status_code, media_type="application/json")
                )
        if not await parts.broker.topics.names(namespace, ListMode.ALL):
            return
    raise AdminRefused(409, f"Clients go on making topics in {namespace}; stop them, then delete it again")


async def remove_namespace(parts: AdminParts, namespace: NamespaceName) -> None:
    """The records of a namespace without topics."""
    if parts.broker.cluster is not None:
        for bundle in (await parts.broker.bundles.of(namespace)).all():
            await parts.broker.cluster.free(bundle)
    await parts.records.delete(namespace.local_policies_path)
    try:
        await parts.records.store.delete(namespace.policies_path)
    except NoRecord as error:
        raise AdminRefused(404, f"Namespace {namespace} does not exist.") from error


async def _all_topics(parts: AdminParts, namespace: NamespaceName) -> AsyncIterator[tuple[TopicName, bool]]:
    """Partitioned topics as a whole, and then what is left."""
    for domain in TopicDomain:
        for topic in await parts.broker.namespaces.partitioned(namespace, domain):
            yield topic, True
    for topic in await parts.broker.topics.names(namespace, ListMode.ALL):
        yield topic, False
