# SPDX-License-Identifier: Apache-2.0
"""`/admin/v3/transactions`: coordinators, open transactions, what topics and subscriptions hold for them; abort.

Shapes and names are Apache Pulsar's. Never decides how a transaction ends: an abort goes through its coordinator.
Carries.
"""

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.at_owner import is_elsewhere
from magnetar.admin.names_asked import decoded_subscription, decoded_topic
from magnetar.admin.parts import AdminParts, Parts
from magnetar.admin.topic_loading import stored_topic, subscription_of
from magnetar.broker.topic import Topic
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.coordinator_state import Transaction
from magnetar.broker.transactions.pending_ack_log import PendingAckLog
from magnetar.broker.transactions.pending_acks import WHOLE
from magnetar.broker.transactions.transactions import Transactions
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import MagnetarError, NoTransactionCoordinator, TransactionNotFound
from magnetar.ids import EARLIEST, Position
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.names import ASSIGN_TOPIC, TopicName

_ROOT: Final = "/admin/v3/transactions"
_TOPIC: Final = "/{tenant}/{namespace}/{topic}"
_READY: Final = "Ready"

router = APIRouter(tags=["transactions"])


# --- coordinators -----------------------------------------------------------------------------------


@router.get(_ROOT + "/coordinators")
async def coordinators(parts: Parts) -> Response:
    found = []
    for number in range(_transactions(parts).amount):
        owner = (await parts.broker.ownership.locate(ASSIGN_TOPIC.partition(number))).owner
        found.append({"id": number, "brokerServiceUrl": owner.service_url})
    return answered(found)


@router.get(_ROOT + "/coordinatorStats")
async def coordinator_stats(request: Request, parts: Parts, coordinatorId: int | None = None) -> Response:
    if coordinatorId is not None:
        return answered(_stats_of(await _coordinator(parts, coordinatorId)))
    found: dict[str, Any] = {}
    for number in range(_transactions(parts).amount):
        if await is_elsewhere(parts, ASSIGN_TOPIC.partition(number)):
            found[str(number)] = await _elsewhere(request, parts, number)
        else:
            found[str(number)] = _stats_of(await _coordinator(parts, number))
    return answered(found)


@router.get(_ROOT + "/coordinatorInternalStats/{coordinator_id}")
async def coordinator_internals(parts: Parts, coordinator_id: int) -> Response:
    log = (await _coordinator(parts, coordinator_id)).log.ledger
    return answered({"transactionLogStats": _log_stats(log)})


@router.post(_ROOT + "/transactionCoordinator/replicas")
async def scale(parts: Parts, request: Request) -> Response:
    """More coordinators; never fewer."""
    body = (await request.body()).decode(errors="replace").strip()
    if not body.isdigit() or not int(body):
        raise AdminRefused(406, "Number of transaction coordinators must be more than 0")
    transactions = _transactions(parts)
    if int(body) <= transactions.amount:
        raise AdminRefused(406, "Number of transaction coordinators must be more than the current number")
    await transactions.grow(int(body))
    return done()


# --- transactions -----------------------------------------------------------------------------------


@router.get(_ROOT + "/transactionMetadata/{most}/{least}")
async def metadata(parts: Parts, most: int, least: int) -> Response:
    return answered(await _metadata(parts, await _transaction(parts, TxnId(most, least))))


@router.get(_ROOT + "/slowTransactions/{timeout}")
async def slow(request: Request, parts: Parts, timeout: int, coordinatorId: int | None = None) -> Response:
    """Open for at least so many milliseconds."""
    numbers = range(_transactions(parts).amount) if coordinatorId is None else [coordinatorId]
    before_ms = parts.clock.now_ms() - timeout
    found: dict[str, Any] = {}
    for number in numbers:
        if coordinatorId is None and await is_elsewhere(parts, ASSIGN_TOPIC.partition(number)):
            found |= await _elsewhere(request, parts, number)
            continue
        for transaction in (await _coordinator(parts, number)).state.transactions():
            if transaction.started_ms <= before_ms:
                found[str(transaction.id)] = await _metadata(parts, transaction)
    return answered(found)


@router.post(_ROOT + "/abortTransaction/{most}/{least}")
async def abort(parts: Parts, most: int, least: int) -> Response:
    txn_id = TxnId(most, least)
    await _transaction(parts, txn_id)
    await (await _coordinator(parts, most)).end(txn_id, commit=False)
    return done()


# --- topics -----------------------------------------------------------------------------------------


@router.get(_ROOT + "/transactionBufferStats" + _TOPIC)
async def buffer_stats(parts: Parts, tenant: str, namespace: str, topic: str) -> Response:
    found = await _topic(parts, tenant, namespace, topic)
    buffer = found.transactions.buffer
    through = found.managed_ledger.last_confirmed if buffer.through is None else buffer.through
    return answered(
        {
            "state": _READY,
            "maxReadPosition": _text(through),
            "lastSnapshotTimestamps": found.transactions.saved_ms,
            "ongoingTxnSize": len(buffer.open),
            "totalAbortedTransactions": len(buffer.aborted),
        }
    )


@router.get(_ROOT + "/transactionBufferInternalStats" + _TOPIC)
async def buffer_internals(parts: Parts, tenant: str, namespace: str, topic: str) -> Response:
    """The snapshot is a cursor of the topic's own log, not a log of its own."""
    found = await _topic(parts, tenant, namespace, topic)
    return answered(
        {"snapshotType": "Cursor", "singleSnapshotSystemTopicInternalStats": _log_stats(found.managed_ledger)}
    )


@router.get(_ROOT + "/transactionInBufferStats" + _TOPIC + "/{most}/{least}")
async def in_buffer(parts: Parts, tenant: str, namespace: str, topic: str, most: int, least: int) -> Response:
    return answered(_in_buffer(await _topic(parts, tenant, namespace, topic), TxnId(most, least)))


# --- subscriptions ----------------------------------------------------------------------------------


@router.get(_ROOT + "/pendingAckStats" + _TOPIC + "/{subscription}")
async def pending_stats(parts: Parts, tenant: str, namespace: str, topic: str, subscription: str) -> Response:
    log = await _pending(parts, tenant, namespace, topic, subscription)
    return answered(
        {"state": "None" if log is None else _READY, "ongoingTxnSize": 0 if log is None else len(log.acks.transactions)}
    )


@router.get(_ROOT + "/pendingAckInternalStats" + _TOPIC + "/{subscription}")
async def pending_internals(parts: Parts, tenant: str, namespace: str, topic: str, subscription: str) -> Response:
    log = await _pending(parts, tenant, namespace, topic, subscription)
    if log is None:
        raise AdminRefused(404, "The subscription has no pending acknowledgements")
    return answered({"pendingAckLogStats": _log_stats(log.log.ledger)})


@router.get(_ROOT + "/transactionInPendingAckStats" + _TOPIC + "/{subscription}/{most}/{least}")
async def in_pending(
    parts: Parts, tenant: str, namespace: str, topic: str, subscription: str, most: int, least: int
) -> Response:
    log = await _pending(parts, tenant, namespace, topic, subscription)
    return answered(_in_pending(log, TxnId(most, least)))


@router.get(_ROOT + "/positionStatsInPendingAck" + _TOPIC + "/{subscription}/{ledger_id}/{entry_id}")
async def position_stats(
    parts: Parts, tenant: str, namespace: str, topic: str, subscription: str, ledger_id: int, entry_id: int
) -> Response:
    """Whether a message is acknowledged in a transaction that has not ended."""
    log = await _pending(parts, tenant, namespace, topic, subscription)
    if log is None:
        return answered({"state": "PendingAckNotReady"})
    claimed = log.acks.claimed(Position(ledger_id, entry_id))
    return answered({"state": "PendingAck" if claimed == WHOLE or claimed else "NotInPendingAck"})


# --- inside -----------------------------------------------------------------------------------------


def _transactions(parts: AdminParts) -> Transactions:
    transactions = parts.broker.transactions
    try:
        transactions.check_enabled()
    except MagnetarError as error:
        raise AdminRefused(
            503, f"This Broker is not configured with transactionCoordinatorEnabled=true. {error}"
        ) from error
    return transactions


async def _coordinator(parts: AdminParts, number: int) -> Coordinator:
    try:
        return await _transactions(parts).coordinator(number)
    except NoTransactionCoordinator as error:
        raise AdminRefused(404, str(error)) from error


async def _elsewhere(request: Request, parts: AdminParts, number: int) -> dict[str, Any]:
    """The same question to the broker that keeps a coordinator, about that one."""
    keeper = ASSIGN_TOPIC.partition(number)
    answer = await parts.peers.ask(request, keeper, "GET", request.url.path, coordinatorId=str(number))
    if answer.is_error:
        raise AdminRefused(answer.status_code, answer.text)
    found: dict[str, Any] = answer.json()
    return found


async def _transaction(parts: AdminParts, txn_id: TxnId) -> Transaction:
    coordinator = await _coordinator(parts, txn_id.most)
    try:
        return coordinator.state.find(txn_id)
    except TransactionNotFound as error:
        raise AdminRefused(404, str(error)) from error


async def _topic(parts: AdminParts, tenant: str, namespace: str, topic: str) -> Topic:
    _transactions(parts)
    return await stored_topic(parts, decoded_topic("persistent", tenant, namespace, topic))


async def _pending(
    parts: AdminParts, tenant: str, namespace: str, topic: str, subscription: str
) -> PendingAckLog | None:
    found = await _topic(parts, tenant, namespace, topic)
    return subscription_of(found, decoded_subscription(subscription)).pending_acks


async def _metadata(parts: AdminParts, transaction: Transaction) -> dict[str, Any]:
    produced: dict[str, Any] = {}
    for name in transaction.partitions:
        loaded = parts.broker.topics.find(TopicName.parse(name))
        produced[name] = {} if loaded is None else _in_buffer(loaded, transaction.id)
    acked: dict[str, dict[str, Any]] = {}
    for name, subscription in transaction.subscriptions:
        loaded = parts.broker.topics.find(TopicName.parse(name))
        held = None if loaded is None else loaded.subscriptions.get(subscription)
        log = None if held is None else held.pending_acks
        acked.setdefault(name, {})[subscription] = _in_pending(log, transaction.id)
    return {
        "txnId": str(transaction.id),
        "status": transaction.status.name,
        "openTimestamp": transaction.started_ms,
        "timeoutAt": transaction.timeout_ms,
        "producedPartitions": produced,
        "ackedPartitions": acked,
        "owner": transaction.owner,
    }


def _stats_of(coordinator: Coordinator) -> dict[str, Any]:
    state = coordinator.state
    return {
        "state": _READY,
        "leastSigBits": state.last_id,
        "lowWaterMark": state.low_watermark,
        "ongoingTxnSize": state.active,
    }


def _in_buffer(topic: Topic, txn_id: TxnId) -> dict[str, Any]:
    buffer = topic.transactions.buffer
    first = buffer.open.get(txn_id)
    return {"startPosition": None if first is None else _text(first), "aborted": buffer.is_aborted(txn_id)}


def _in_pending(log: PendingAckLog | None, txn_id: TxnId) -> dict[str, Any]:
    claims = () if log is None else log.acks.claims()
    cumulative = next((claim for each, _, claim in claims if each == txn_id), None)
    return {"cumulativeAckPosition": None if cumulative is None else _text(cumulative.position)}


def _log_stats(log: ManagedLedger) -> dict[str, Any]:
    return {
        "managedLedgerName": log.name,
        "managedLedgerInternalStats": {
            "numberOfEntries": log.entries,
            "totalSize": log.size_bytes,
            "lastConfirmedEntry": _text(log.last_confirmed),
            "state": "LedgerOpened",
            "ledgers": [
                {"ledgerId": span.ledger_id, "entries": span.entries, "size": span.size_bytes} for span in log.ledgers
            ],
            "cursors": {
                name: {"markDeletePosition": _text(cursor.mark_delete)} for name, cursor in log.cursors.items()
            },
        },
    }


def _text(position: Position) -> str:
    position = max(position, EARLIEST)
    return f"{position.ledger_id}:{position.entry_id}"
