# SPDX-License-Identifier: Apache-2.0
"""`magnetar client produce|consume|read|view`: which flags each takes; those of pulsar-client.

Decides.
"""

from typing import Final

from magnetar.cli.access import CLIENT_FLAGS
from magnetar.cli.words import Command, Kind, flag

_TOPIC: Final = ("topic",)
_KEY_VALUE: Final = flag("--encryption-key-value -ekv", Kind.TEXT, "File of the key, maybe as file:///….")
_QUEUE: Final = flag("--queue-size -q", Kind.NUMBER, "Messages that are fetched ahead.", default=0)
_CHUNKED: Final = flag("--max_chunked_msg -mc", Kind.NUMBER, "Chunked messages that may be incomplete.", default=0)
_CHUNKED_FULL: Final = flag("--auto_ack_chunk_q_full -ac", Kind.SWITCH, "Acknowledge the oldest beyond that.")
_POOL: Final = flag("--pool-messages -pm", Kind.BOOLEAN, "Means nothing here.", default=True)
_CRYPTO: Final = flag(
    "--crypto-failure-action -ca",
    Kind.TEXT,
    "What becomes of a message that cannot be decrypted.",
    default="FAIL",
    choices="FAIL DISCARD CONSUME",
)
_SHOWN: Final = (
    flag("--num-messages -n", Kind.NUMBER, "How many; 0 goes on until Ctrl-C.", default=1),
    flag("--hex", Kind.SWITCH, "Payloads as hexadecimal numbers."),
    flag("--hide-content", Kind.SWITCH, "Do not print messages."),
    flag("--rate -r", Kind.DECIMAL, "Messages a second at most; 0 means no limit.", default=0.0),
)
_READ_SCHEMA: Final = flag(
    "--schema-type -st", Kind.TEXT, "bytes, string, or auto_consume: by the topic's schema.", default="bytes"
)
_METADATA: Final = flag("--print-metadata -mp", Kind.SWITCH, "The message's metadata too.")
_JSON: Final = flag("--json", Kind.SWITCH, "One JSON object to a line.")
# The proxy's flags are taken, as Pulsar's scripts give them; only SNI routing is unknown to our client.
_PROXY: Final = (
    flag("--proxy-url", Kind.TEXT, "Not used: give the proxy as --url."),
    flag("--proxy-protocol", Kind.TEXT, "Not used."),
    flag("--memory-limit -ml", Kind.SIZE, "Bytes that producers may hold: 64M; 0 means no limit."),
)
COMMON: Final = (*CLIENT_FLAGS, *_PROXY)

PRODUCE: Final = Command(
    "produce",
    "Send messages to a topic.",
    _TOPIC,
    (
        flag("--messages -m", Kind.REPEATED, "What to send; more of them after a comma or typed again."),
        flag("--files -f", Kind.TEXTS, "Files to send, each as one message."),
        flag("--num-produce -n", Kind.NUMBER, "How often to send them all.", default=1),
        flag("--rate -r", Kind.DECIMAL, "Messages a second; 0 means as fast as possible.", default=0.0),
        flag("--disable-batching -db", Kind.SWITCH, "Each message in an entry of its own."),
        flag("--chunking -c", Kind.SWITCH, "Cut messages that are too large."),
        flag("--separator -s", Kind.TEXT, "What parts messages; nothing: they are not parted.", default=","),
        flag("--properties -p", Kind.PAIRS, "Properties of each message.", default={}),
        flag("--key -k", Kind.TEXT, "Key of each message."),
        flag("--key-value-key -kvk", Kind.TEXT, "Key of a key-value message."),
        flag("--key-value-key-file -kvkf", Kind.TEXT, "File with the key of a key-value message."),
        flag("--value-schema -vs", Kind.TEXT, "bytes, string, avro:DEFINITION or json:DEFINITION.", default="bytes"),
        flag("--key-schema -ks", Kind.TEXT, "The same for the key of a key-value message.", default="string"),
        flag("--key-value-encoding-type -kvet", Kind.TEXT, "Where the key goes.", choices="none separated inline"),
        flag("--encryption-key-name -ekn", Kind.TEXT, "Encrypt for this key."),
        _KEY_VALUE,
        flag("--disable-replication -dr", Kind.SWITCH, "Not to other clusters."),
    ),
)
CONSUME: Final = Command(
    "consume",
    "Receive messages of a subscription and acknowledge them.",
    _TOPIC,
    (
        flag(
            "--subscription-type -t",
            Kind.TEXT,
            "How consumers share.",
            default="Exclusive",
            choices="Exclusive Shared Failover Key_Shared",
        ),
        flag(
            "--subscription-mode -m",
            Kind.TEXT,
            "Whether the subscription outlives its consumers.",
            default="Durable",
            choices="Durable NonDurable",
        ),
        flag(
            "--subscription-position -p",
            Kind.TEXT,
            "Where a new subscription starts.",
            default="Latest",
            choices="Latest Earliest",
        ),
        flag("--subscription-name -s", Kind.TEXT, "The subscription.", required=True),
        *_SHOWN,
        flag("--regex", Kind.SWITCH, "The topic is a pattern."),
        _QUEUE,
        _CHUNKED,
        _CHUNKED_FULL,
        _KEY_VALUE,
        _READ_SCHEMA,
        _POOL,
        flag("--replicated -rs", Kind.SWITCH, "The subscription is kept equal in other clusters."),
        _CRYPTO,
        _METADATA,
        flag("--start-timestamp -stp", Kind.NUMBER, "Only what was published since; milliseconds.", default=0),
        flag(
            "--end-timestamp -etp", Kind.NUMBER, "Only what was published before; milliseconds.", default=(1 << 63) - 1
        ),
        _JSON,
    ),
)
READ: Final = Command(
    "read",
    "Read messages without a subscription.",
    _TOPIC,
    (
        flag("--start-message-id -m", Kind.TEXT, "latest, earliest or LEDGER:ENTRY.", default="latest"),
        flag("--start-message-id-inclusive -i", Kind.SWITCH, "With that message, not after it."),
        *_SHOWN,
        _QUEUE,
        _CHUNKED,
        _CHUNKED_FULL,
        _KEY_VALUE,
        _READ_SCHEMA,
        _POOL,
        _CRYPTO,
        _METADATA,
        _JSON,
    ),
)
VIEW: Final = Command(
    "view",
    "Show the latest value of each key of a topic.",
    _TOPIC,
    (
        flag("--follow", Kind.SWITCH, "Go on with what changes, until Ctrl-C."),
        flag("--key -k", Kind.TEXT, "Only this key."),
        _READ_SCHEMA,
        _JSON,
    ),
)
COMMANDS: Final = {each.name: each for each in (PRODUCE, CONSUME, READ, VIEW)}
