# SPDX-License-Identifier: Apache-2.0
"""TC_CLIENT_CONNECT, NEW_TXN, ADD_PARTITION_TO_TXN, ADD_SUBSCRIPTION_TO_TXN, END_TXN, the two that brokers send to one
another, and messages and acknowledgements in a transaction.

A message in a transaction that its topic does not know yet waits until the coordinator was asked; what its producer
sends meanwhile waits behind it, so that answers keep their order.
Carries.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from magnetar.broker.producer import Producer
from magnetar.broker.publish_budget import MESSAGE_OVERHEAD_BYTES
from magnetar.broker.session.session import OpenConsumer, OpenProducer, Session
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.pending_acks import Claim, claim_of
from magnetar.broker.transactions.transactions import check_owner
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import BadCommand, ChecksumMismatch, MagnetarError, NotSupported
from magnetar.ids import Position
from magnetar.names import TopicName, check_subscription
from magnetar.wire import commands
from magnetar.wire.error_codes import codes_of
from magnetar.wire.proto import pulsar_api_pb2 as pb

# --- coordinators -----------------------------------------------------------------------------------


async def tc_client_connect(session: Session, request: pb.CommandTcClientConnectRequest) -> None:
    """A client will use this coordinator: it is opened now, if this broker serves it."""
    await session.broker.transactions.coordinator(request.tc_id)
    session.answer(
        pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE, pb.CommandTcClientConnectResponse(request_id=request.request_id)
    )


async def new_txn(session: Session, request: pb.CommandNewTxn) -> None:
    coordinator = await session.broker.transactions.coordinator(request.tc_id)
    txn_id = await coordinator.new(request.txn_ttl_millis, _role(session))
    answer = pb.CommandNewTxnResponse(request_id=request.request_id)
    _answer(session, pb.BaseCommand.NEW_TXN_RESPONSE, answer, txn_id)


async def add_partition_to_txn(session: Session, request: pb.CommandAddPartitionToTxn) -> None:
    txn_id = _id_of(request)
    coordinator = await _own(session, txn_id)
    await coordinator.add_partitions(txn_id, [str(TopicName.parse(name)) for name in request.partitions])
    answer = pb.CommandAddPartitionToTxnResponse(request_id=request.request_id)
    _answer(session, pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE, answer, txn_id)


async def add_subscription_to_txn(session: Session, request: pb.CommandAddSubscriptionToTxn) -> None:
    txn_id = _id_of(request)
    coordinator = await _own(session, txn_id)
    pairs = [(str(TopicName.parse(each.topic)), check_subscription(each.subscription)) for each in request.subscription]
    await coordinator.add_subscriptions(txn_id, pairs)
    answer = pb.CommandAddSubscriptionToTxnResponse(request_id=request.request_id)
    _answer(session, pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, answer, txn_id)


async def end_txn(session: Session, request: pb.CommandEndTxn) -> None:
    txn_id = _id_of(request)
    if not request.HasField("txn_action"):
        raise BadCommand("END_TXN says neither commit nor abort")
    coordinator = await _own(session, txn_id)
    await coordinator.end(txn_id, commit=request.txn_action == pb.COMMIT)
    _answer(session, pb.BaseCommand.END_TXN_RESPONSE, pb.CommandEndTxnResponse(request_id=request.request_id), txn_id)


# --- from other brokers -----------------------------------------------------------------------------


async def end_txn_on_partition(session: Session, request: pb.CommandEndTxnOnPartition) -> None:
    txn_id = _id_of(request)
    session.broker.transactions.check_enabled()
    await session.broker.transactions.end_here(request.topic, txn_id, commit=request.txn_action == pb.COMMIT)
    answer = pb.CommandEndTxnOnPartitionResponse(request_id=request.request_id)
    _answer(session, pb.BaseCommand.END_TXN_ON_PARTITION_RESPONSE, answer, txn_id)


async def end_txn_on_subscription(session: Session, request: pb.CommandEndTxnOnSubscription) -> None:
    txn_id = _id_of(request)
    session.broker.transactions.check_enabled()
    await session.broker.transactions.end_here(
        request.subscription.topic,
        txn_id,
        subscription=request.subscription.subscription,
        commit=request.txn_action == pb.COMMIT,
    )
    answer = pb.CommandEndTxnOnSubscriptionResponse(request_id=request.request_id)
    _answer(session, pb.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE, answer, txn_id)


# --- messages ---------------------------------------------------------------------------------------


class HeldSends:
    """What one producer sent while a coordinator is asked, in its order."""

    __slots__ = ("sends",)

    def __init__(self) -> None:
        # What takes it, the bytes that it holds of the connection's budget, and who waits for it: a producer that was
        # closed meanwhile may have come back under the same id, as another one.
        self.sends: deque[tuple[Callable[[], None], int, Producer]] = deque()


def hold(session: Session, opened: OpenProducer, publish: Callable[[], None], size: int) -> None:
    """Have this wait behind what waits already. It answers, or refuses, by itself."""
    opened.producer.pending += 1
    session.held_sends[opened.producer.producer_id].sends.append((publish, size, opened.producer))


def publish_in_transaction(session: Session, opened: OpenProducer, send: pb.CommandSend, payload: bytes) -> None:
    """Take a message, or have it wait until its coordinator was asked."""
    topic, txn_id = opened.topic, _id_of(send)
    session.broker.transactions.check_enabled()
    if not isinstance(topic, Topic):
        raise NotSupported("A non-persistent topic takes no part in transactions")
    if not topic.transactions.admits(txn_id):
        topic.transactions.check_not_refused(txn_id)
        session.start(_admit_and_go_on(session, opened, topic, txn_id), f"admit transaction {txn_id}")
        session.held_sends[opened.producer.producer_id] = HeldSends()
        hold(session, opened, lambda: _publish(session, opened, send, payload), len(payload))
        return
    topic.transactions.publish(
        txn_id,
        opened.producer,
        send.sequence_id,
        send.highest_sequence_id if send.highest_sequence_id >= send.sequence_id else 0,
        send.num_messages,
        payload,
        is_chunk=send.is_chunk,
    )


def _publish(session: Session, opened: OpenProducer, send: pb.CommandSend, payload: bytes) -> None:
    if is_dropped(session, opened, len(payload)):
        return
    try:
        publish_in_transaction(session, opened, send, payload)
    except MagnetarError as error:
        refuse_send(session, send.producer_id, send.sequence_id, len(payload), error)


async def _admit_and_go_on(session: Session, opened: OpenProducer, topic: Topic, txn_id: TxnId) -> None:
    """Ask the coordinator; then take what waited until the next question comes up."""
    producer_id = opened.producer.producer_id
    held = session.held_sends[producer_id]
    refused = topic.transactions.refused
    try:
        await session.broker.transactions.admit(topic, txn_id)
    except MagnetarError as error:
        # For what waits, and no longer: the next one asks again.
        refused[txn_id] = error
    finally:
        del session.held_sends[producer_id]
        _go_on(session, producer_id, held)
        refused.pop(txn_id, None)


def _go_on(session: Session, producer_id: int, held: HeldSends) -> None:
    while held.sends:
        publish, size, producer = held.sends.popleft()
        if not session.connection.is_open:
            session.connection.budget.give_back(size + MESSAGE_OVERHEAD_BYTES)
            producer.on_stored(1)
            continue
        publish()
        producer.on_stored(1)
        if producer_id in session.held_sends:
            # Another question: the rest waits for that one.
            session.held_sends[producer_id].sends.extend(held.sends)
            return


def refuse_send(session: Session, producer_id: int, sequence_id: int, size: int, error: MagnetarError) -> None:
    """The message is not taken. What its client sends again must come first: until then nothing behind it is taken,
    or deduplication would hold the message for one that is stored.
    """
    session.connection.budget.give_back(size + MESSAGE_OVERHEAD_BYTES)
    session.connection.send(commands.send_error(producer_id, sequence_id, codes_of(error).server_error, str(error)))
    opened = session.producers.get(producer_id)
    if opened is not None and _comes_again(opened, error):
        opened.topic.remove_producer(opened.producer)
        session.disconnect_producer(opened.producer)


def _comes_again(opened: OpenProducer, error: MagnetarError) -> bool:
    """Whether clients send again what was refused for this reason, and it matters that it comes first."""
    if opened.producer.is_replicator:
        # It has nobody to tell: whatever the reason is, it begins again with the message that was refused.
        return True
    if isinstance(error, ChecksumMismatch):
        return isinstance(opened.topic, Topic) and opened.topic.is_deduplicated
    return error.retryable


def is_dropped(session: Session, opened: OpenProducer, size: int) -> bool:
    """Whether a message comes too late, because its producer was closed; its client sends it again."""
    if opened.producer.is_closed:
        session.connection.budget.give_back(size + MESSAGE_OVERHEAD_BYTES)
    return opened.producer.is_closed


# --- acknowledgements -------------------------------------------------------------------------------


async def ack_in_transaction(session: Session, opened: OpenConsumer, ack: pb.CommandAck) -> None:
    """Answered when the acknowledgement is durable: it counts if the transaction commits."""
    answer = pb.CommandAckResponse(consumer_id=ack.consumer_id)
    answer.txnid_most_bits, answer.txnid_least_bits = ack.txnid_most_bits, ack.txnid_least_bits
    try:
        await _claim(session, opened, ack)
    except MagnetarError as error:
        answer.error = codes_of(error).server_error
        answer.message = str(error)
    if ack.HasField("request_id"):
        answer.request_id = ack.request_id
        session.answer(pb.BaseCommand.ACK_RESPONSE, answer)


async def _claim(session: Session, opened: OpenConsumer, ack: pb.CommandAck) -> None:
    topic, subscription, txn_id = opened.topic, opened.subscription, _id_of(ack)
    session.broker.transactions.check_enabled()
    if not (isinstance(topic, Topic) and isinstance(subscription, Subscription)):
        raise NotSupported("A non-persistent topic takes no part in transactions")
    claims = [_claim_of(session, topic, message_id) for message_id in ack.message_id]
    pending = await session.broker.transactions.pending_acks(topic, subscription, txn_id)
    if ack.ack_type != pb.CommandAck.Cumulative:
        await pending.ack(txn_id, claims)
        return
    if len(claims) != 1:
        raise BadCommand(f"A cumulative ACK carries one message id, not {len(claims)}")
    if not subscription.is_ordered:
        raise NotSupported("Cumulative acknowledgement is for Exclusive and Failover subscriptions only")
    await pending.ack_cumulative(txn_id, claims[0])


def _claim_of(session: Session, topic: Topic, message_id: pb.MessageIdData) -> Claim:
    position = Position(message_id.ledgerId, message_id.entryId)
    batch_size = message_id.batch_size if message_id.HasField("batch_size") else 0
    if any(message_id.ack_set):
        if not topic.settings.batch_index_acks:
            raise NotSupported("Parts of batches are not acknowledged here: acknowledgmentAtBatchIndexLevelEnabled")
        facts = session.broker.topics.dispatch.facts.known(position)
        batch_size = facts.messages if facts is not None else batch_size
    return claim_of(position, message_id.ack_set, batch_size)


# --- inside -----------------------------------------------------------------------------------------


def _id_of(request: Any) -> TxnId:
    return TxnId(request.txnid_most_bits, request.txnid_least_bits)


def _role(session: Session) -> str:
    return "" if session.principal is None else session.principal.roles[-1]


async def _own(session: Session, txn_id: TxnId) -> Coordinator:
    """The coordinator of a transaction that this client opened."""
    coordinator = await session.broker.transactions.of(txn_id)
    role = _role(session)
    is_super_user = role in session.broker.guard.settings.super_user_roles
    check_owner(coordinator, txn_id, role, is_super_user=is_super_user)
    return coordinator


def _answer(session: Session, kind: "pb.BaseCommand.Type.ValueType", answer: Any, txn_id: TxnId) -> None:
    answer.txnid_most_bits, answer.txnid_least_bits = txn_id
    session.answer(kind, answer)
