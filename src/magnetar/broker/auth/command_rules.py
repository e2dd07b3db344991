# SPDX-License-Identifier: Apache-2.0
"""COMMAND_RULES: what every command that a client may send needs. A command without a row is for super users.

Commands on a producer or consumer need what opening it needed, and that was asked when it was opened.
Decides.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from magnetar.broker.auth.grants import Need, Target
from magnetar.names import ASSIGN_TOPIC, NamespaceName, TopicName
from magnetar.wire.proto.pulsar_api_pb2 import BaseCommand as Type

Question: TypeAlias = tuple[Need, Target]
Rule: TypeAlias = Callable[[Any], Iterator[Question]]


def _nothing(command: Any) -> Iterator[Question]:
    """For what opens a session, keeps it alive, or is about something that this session opened."""
    return iter(())


def _on_topic(need: Need) -> Rule:
    def rule(command: Any) -> Iterator[Question]:
        yield need, Target.of(TopicName.parse(command.topic))

    return rule


def _look_up(command: Any) -> Iterator[Question]:
    """Where coordinators are is for everybody who may connect: what a transaction touches is asked for by itself."""
    topic = TopicName.parse(command.topic)
    if topic.base != ASSIGN_TOPIC:
        yield Need.LOOK_UP, Target.of(topic)


def _produce(command: Any) -> Iterator[Question]:
    topic = TopicName.parse(command.topic)
    yield Need.PRODUCE, Target.of(topic)
    if command.initial_subscription_name:
        yield Need.CONSUME, Target.of(topic, command.initial_subscription_name)


def _subscribe(command: Any) -> Iterator[Question]:
    yield Need.CONSUME, Target.of(TopicName.parse(command.topic), command.subscription)


def _list(command: Any) -> Iterator[Question]:
    namespace = NamespaceName.parse(command.namespace)
    yield Need.LIST, Target(namespace.tenant, namespace)


def _partitions_in_transaction(command: Any) -> Iterator[Question]:
    for topic in command.partitions:
        yield Need.PRODUCE, Target.of(TopicName.parse(topic))


def _subscriptions_in_transaction(command: Any) -> Iterator[Question]:
    for subscription in command.subscription:
        yield Need.CONSUME, Target.of(TopicName.parse(subscription.topic), subscription.subscription)


def _super_user(command: Any) -> Iterator[Question]:
    yield Need.SUPER_USER, Target()


COMMAND_RULES: Final[Mapping[int, Rule]] = {
    Type.CONNECT: _nothing,
    Type.AUTH_RESPONSE: _nothing,
    Type.PING: _nothing,
    Type.PONG: _nothing,
    Type.PARTITIONED_METADATA: _look_up,
    Type.LOOKUP: _look_up,
    Type.GET_TOPICS_OF_NAMESPACE: _list,
    Type.WATCH_TOPIC_LIST: _list,
    Type.WATCH_TOPIC_LIST_CLOSE: _nothing,
    Type.PRODUCER: _produce,
    Type.SEND: _nothing,
    Type.CLOSE_PRODUCER: _nothing,
    Type.SUBSCRIBE: _subscribe,
    Type.FLOW: _nothing,
    Type.ACK: _nothing,
    Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: _nothing,
    Type.SEEK: _nothing,
    Type.UNSUBSCRIBE: _nothing,
    Type.CLOSE_CONSUMER: _nothing,
    Type.GET_LAST_MESSAGE_ID: _nothing,
    Type.CONSUMER_STATS: _nothing,
    Type.GET_SCHEMA: _on_topic(Need.LOOK_UP),
    Type.GET_OR_CREATE_SCHEMA: _on_topic(Need.PRODUCE),
    # A transaction is its opener's; what it touches is asked for when it is touched.
    Type.TC_CLIENT_CONNECT_REQUEST: _nothing,
    Type.NEW_TXN: _nothing,
    Type.ADD_PARTITION_TO_TXN: _partitions_in_transaction,
    Type.ADD_SUBSCRIPTION_TO_TXN: _subscriptions_in_transaction,
    Type.END_TXN: _nothing,
    # Brokers send these to one another.
    Type.END_TXN_ON_PARTITION: _super_user,
    Type.END_TXN_ON_SUBSCRIPTION: _super_user,
}


def questions(command_type: int, command: Any) -> Iterator[Question]:
    """What must be allowed before this command is carried out. BadName when it names nothing that can be."""
    return COMMAND_RULES.get(command_type, _super_user)(command)
