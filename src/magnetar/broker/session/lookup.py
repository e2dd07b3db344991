# SPDX-License-Identifier: Apache-2.0
"""PARTITIONED_METADATA and LOOKUP: how many partitions a topic has, and which broker serves it.

Carries.
"""

from magnetar.broker.session.session import Session
from magnetar.names import ASSIGN_TOPIC, TopicName
from magnetar.wire.proto import pulsar_api_pb2 as pb


async def partitioned_metadata(session: Session, request: pb.CommandPartitionedTopicMetadata) -> None:
    topic = TopicName.parse(request.topic)
    # How many coordinators there are is not for clients to say.
    create = request.metadata_auto_creation_enabled and topic.base != ASSIGN_TOPIC
    count = await session.broker.topics.partitions(topic, create=create)
    session.answer(
        pb.BaseCommand.PARTITIONED_METADATA_RESPONSE,
        pb.CommandPartitionedTopicMetadataResponse(
            request_id=request.request_id,
            partitions=count,
            response=pb.CommandPartitionedTopicMetadataResponse.Success,
        ),
    )


async def lookup(session: Session, request: pb.CommandLookupTopic) -> None:
    topic = TopicName.parse(request.topic)
    located = await session.broker.look_up(
        topic,
        authoritative=request.authoritative,
        listener=request.advertised_listener_name or session.connection.listener,
    )
    kind = pb.CommandLookupTopicResponse.Redirect if located.is_redirect else pb.CommandLookupTopicResponse.Connect
    session.answer(
        pb.BaseCommand.LOOKUP_RESPONSE,
        pb.CommandLookupTopicResponse(
            request_id=request.request_id,
            brokerServiceUrl=located.owner.service_url or None,
            brokerServiceUrlTls=located.owner.service_url_tls or None,
            authoritative=located.is_authoritative,
            response=kind,
        ),
    )
