# SPDX-License-Identifier: Apache-2.0
"""Queries of the WebSocket API as options: Pulsar's names, defaults and limits."""

import base64
import json
from typing import Any

import pytest

from magnetar.client.options import (
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
)
from magnetar.errors import BadSetting, NotSupported
from magnetar.ids import EARLIEST_MESSAGE, LATEST_MESSAGE, MessageId
from magnetar.names import TopicName
from magnetar.websocket.parameters import (
    consumer_options,
    producer_options,
    pulls,
    queue_size,
    reader_options,
    reader_start,
)
from magnetar.websocket.sealed import SealedMessage, keys_of
from magnetar.websocket.texts import read_producer_text
from magnetar.wire.proto import pulsar_api_pb2 as pb

TOPICS = (TopicName.parse("t"),)


@pytest.mark.feature("F-PH-10")
def test_a_producer_without_parameters_is_as_pulsars() -> None:
    options = producer_options({})
    assert not options.batching_enabled
    assert options.message_routing_mode is PartitionsRoutingMode.UseSinglePartition
    assert options.hashing_scheme is HashingScheme.JavaStringHash
    assert (options.send_timeout_millis, options.compression_type) == (30_000, CompressionType.NONE)
    assert options.block_if_queue_full, "the socket waits, nobody is refused"


@pytest.mark.feature("F-PH-10")
def test_every_parameter_of_a_producer() -> None:
    options = producer_options(
        {
            "producerName": "p",
            "initialSequenceId": "7",
            "sendTimeoutMillis": "5",
            "hashingScheme": "Murmur3_32Hash",
            "messageRoutingMode": "RoundRobinPartition",
            "compressionType": "ZSTD",
            "batchingEnabled": "TRUE",
            "batchingMaxMessages": "9",
            "batchingMaxPublishDelay": "11",
            "maxPendingMessages": "13",
            "nonsense": "x",
        }
    )
    assert (options.producer_name, options.initial_sequence_id, options.send_timeout_millis) == ("p", 7, 5)
    assert options.hashing_scheme is HashingScheme.Murmur3_32Hash
    assert options.message_routing_mode is PartitionsRoutingMode.RoundRobinDistribution
    assert options.compression_type is CompressionType.ZSTD
    assert (options.batching_enabled, options.batching_max_messages) == (True, 9)
    assert (options.batching_max_publish_delay_ms, options.max_pending_messages) == (11, 13)


def test_without_batches_what_concerns_them_is_not_looked_at() -> None:
    assert producer_options({"batchingMaxMessages": "x", "maxPendingMessages": "-1"}).max_pending_messages == 1_000


@pytest.mark.feature("F-PH-10")
def test_every_parameter_of_a_consumer() -> None:
    options = consumer_options(
        {
            "subscriptionType": "Key_Shared",
            "subscriptionMode": "NonDurable",
            "subscriptionInitialPosition": "Earliest",
            "receiverQueueSize": "5000",
            "consumerName": "c",
            "priorityLevel": "2",
            "ackTimeoutMillis": "1000",
            "negativeAckRedeliveryDelay": "3",
            "maxRedeliverCount": "4",
            "cryptoFailureAction": "CONSUME",
        },
        TOPICS,
        "s",
    )
    assert (options.consumer_type, options.durable) == (ConsumerType.KeyShared, False)
    assert options.initial_position is InitialPosition.Earliest
    assert (options.receiver_queue_size, options.consumer_name, options.priority_level) == (1_000, "c", 2)
    assert (options.unacked_messages_timeout_ms, options.negative_ack_redelivery_delay_ms) == (1_000, 3)
    assert options.crypto_failure_action is ConsumerCryptoFailureAction.CONSUME
    assert options.dead_letter_policy is not None
    assert options.dead_letter_policy.max_redeliver_count == 4
    assert options.dead_letter_policy.dead_letter_topic == "persistent://public/default/t-s-DLQ"


@pytest.mark.parametrize(
    "parameters",
    [
        {"subscriptionType": "Nope"},
        {"subscriptionMode": "Nope"},
        {"subscriptionInitialPosition": "Nope"},
        {"receiverQueueSize": "x"},
        {"receiverQueueSize": "-1"},
        {"receiverQueueSize": "٣"},
        {"ackTimeoutMillis": "999"},
        {"priorityLevel": "-1"},
        {"negativeAckRedeliveryDelay": ""},
        {"maxRedeliverCount": "0"},
        {"deadLetterTopic": "d"},
        {"maxRedeliverCount": "9" * 30},
    ],
)
def test_values_that_cannot_be_used_are_named(parameters: dict[str, str]) -> None:
    with pytest.raises(BadSetting):
        consumer_options(parameters, TOPICS, "s")


def test_what_pulsar_passes_over_is_passed_over() -> None:
    options = consumer_options({"cryptoFailureAction": "Nope", "maxRedeliverCount": "2"}, TOPICS, "s")
    assert options.crypto_failure_action is ConsumerCryptoFailureAction.FAIL
    assert options.dead_letter_policy is None, "an exclusive subscription has no dead letters"
    assert not pulls({"pullMode": "maybe"})
    assert pulls({"pullMode": "True"})


@pytest.mark.feature("F-PH-10")
def test_where_a_reader_starts() -> None:
    for text, place in (("", LATEST_MESSAGE), ("latest", LATEST_MESSAGE), ("earliest", EARLIEST_MESSAGE)):
        assert reader_start({"messageId": text}) == place
    assert reader_start({"messageId": "CAMQBDAA"}) == MessageId(3, 4)
    with pytest.raises(BadSetting, match="messageId"):
        reader_start({"messageId": "@@"})
    assert reader_options({"readerName": "r", "receiverQueueSize": "0"}).consumer_name == "r"
    assert queue_size({}) == 1_000


# --- messages that are encrypted already ------------------------------------------------------------


def packed(keys: Any) -> str:
    return base64.b64encode(json.dumps(keys).encode()).decode()


@pytest.mark.feature("B-27")
def test_keys_and_what_a_client_says_of_its_payload_reach_the_metadata() -> None:
    text = packed({"mine": {"keyValue": base64.b64encode(b"wrapped").decode(), "metadata": {"v": "1"}}})
    keys = keys_of({"encryptionKeys": text})
    wanted = read_producer_text(
        json.dumps(
            {
                "payload": base64.b64encode(b"sealed").decode(),
                "encryptionParam": base64.b64encode(b"nonce").decode(),
                "compressionType": "LZ4",
                "uncompressedMessageSize": 99,
            }
        )
    )
    metadata = pb.MessageMetadata()
    message = SealedMessage(wanted, keys, 0)
    message.fill(metadata)
    assert (message.payload, message.is_plain) == (b"sealed", False)
    assert [(key.key, key.value, key.metadata[0].value) for key in metadata.encryption_keys] == [
        ("mine", b"wrapped", "1")
    ]
    assert (metadata.encryption_param, metadata.compression, metadata.uncompressed_size) == (b"nonce", pb.LZ4, 99)
    assert not producer_options({"batchingEnabled": "true"}, encrypts_itself=True).batching_enabled


def test_keys_that_the_service_should_have_are_refused() -> None:
    assert keys_of({}) == ()
    for text in ("name", "a,b", packed([1]), packed({}), "@"):
        with pytest.raises(NotSupported, match="no keys of its own"):
            keys_of({"encryptionKeys": text})
    wrong: list[dict[str, Any]] = [{"a": {}}, {"a": {"keyValue": "@"}}, {" ": {"keyValue": "QQ=="}}, {"a": 1}]
    for keys in wrong:
        with pytest.raises(BadSetting):
            keys_of({"encryptionKeys": packed(keys)})
