# SPDX-License-Identifier: Apache-2.0
"""SERVED: every command that this broker serves, and who serves it.

SEND is the one command with a body, and goes straight to `produce.on_sends`; without a body it comes here. A command
of the protocol that a client may send and that is not here gets the refusal its client waits for.
Decides.
"""

from collections.abc import Mapping
from typing import Final

from magnetar.broker.session import authenticate, connect, consume, lists, lookup, produce, schemas, transactions
from magnetar.broker.session.session import Serving
from magnetar.wire.proto.pulsar_api_pb2 import BaseCommand

SERVED: Final[Mapping[int, Serving]] = {
    BaseCommand.CONNECT: Serving(hot=connect.on_connect),
    BaseCommand.AUTH_RESPONSE: Serving(hot=authenticate.on_auth_response),
    BaseCommand.PING: Serving(hot=connect.on_ping),
    BaseCommand.PONG: Serving(hot=connect.on_pong),
    BaseCommand.PARTITIONED_METADATA: Serving(cold=lookup.partitioned_metadata),
    BaseCommand.LOOKUP: Serving(cold=lookup.lookup),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: Serving(cold=lists.topics_of_namespace),
    BaseCommand.WATCH_TOPIC_LIST: Serving(cold=lists.watch_topic_list),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: Serving(cold=lists.watch_topic_list_close),
    BaseCommand.SEND: Serving(hot=produce.on_empty_send),
    BaseCommand.PRODUCER: Serving(cold=produce.open_producer),
    BaseCommand.CLOSE_PRODUCER: Serving(cold=produce.close_producer),
    BaseCommand.SUBSCRIBE: Serving(cold=consume.subscribe),
    BaseCommand.FLOW: Serving(hot=consume.on_flow),
    BaseCommand.ACK: Serving(hot=consume.on_ack, quick=consume.on_plain_ack),
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: Serving(hot=consume.on_redeliver),
    BaseCommand.SEEK: Serving(cold=consume.seek),
    BaseCommand.UNSUBSCRIBE: Serving(cold=consume.unsubscribe),
    BaseCommand.CLOSE_CONSUMER: Serving(cold=consume.close_consumer),
    BaseCommand.GET_LAST_MESSAGE_ID: Serving(cold=consume.last_message_id),
    BaseCommand.GET_SCHEMA: Serving(cold=schemas.find_schema),
    BaseCommand.GET_OR_CREATE_SCHEMA: Serving(cold=schemas.adopt_schema),
    BaseCommand.CONSUMER_STATS: Serving(cold=consume.consumer_stats),
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: Serving(cold=transactions.tc_client_connect),
    BaseCommand.NEW_TXN: Serving(cold=transactions.new_txn),
    BaseCommand.ADD_PARTITION_TO_TXN: Serving(cold=transactions.add_partition_to_txn),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: Serving(cold=transactions.add_subscription_to_txn),
    BaseCommand.END_TXN: Serving(cold=transactions.end_txn),
    BaseCommand.END_TXN_ON_PARTITION: Serving(cold=transactions.end_txn_on_partition),
    BaseCommand.END_TXN_ON_SUBSCRIPTION: Serving(cold=transactions.end_txn_on_subscription),
}
