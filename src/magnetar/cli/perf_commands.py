# SPDX-License-Identifier: Apache-2.0
"""`magnetar perf produce|consume|read|transaction`: which flags each takes; those of pulsar-perf.

Flags that steer threads and buffers of the Java client are taken and mean nothing; their help says so.
Decides.
"""

from typing import Final

from magnetar.cli.access import PLACE_FLAGS
from magnetar.cli.words import Command, Kind, flag

_NOTHING: Final = "Means nothing here."
_TOPICS: Final = ("topics…",)
COMMON: Final = (
    flag("--service-url -u --url", Kind.TEXT, "Where brokers serve clients [pulsar://127.0.0.1:6650]."),
    flag("--auth-plugin --auth_plugin", Kind.TEXT, "How to prove who asks: token, basic, tls, oauth2."),
    flag("--auth-params", Kind.TEXT, "What to prove it with: token:…, file:///…, or key:value,…"),
    flag("--ssl-factory-plugin", Kind.TEXT, _NOTHING),
    flag("--ssl-factory-plugin-params", Kind.TEXT, _NOTHING),
    flag("--trust-cert-file", Kind.TEXT, "Certificates that are trusted."),
    flag("--tls-allow-insecure", Kind.SWITCH, "Take any certificate.", default=None),
    flag("--tls-enable-hostname-verification", Kind.SWITCH, "Check the name in the certificate.", default=None),
    flag("--max-connections -c", Kind.NUMBER, "Connections to each broker.", default=1),
    flag("--stats-interval-seconds -i", Kind.NUMBER, "Seconds between two lines of figures [10].", default=0),
    flag("--num-io-threads -ioThreads", Kind.NUMBER, _NOTHING, default=1),
    flag("--busy-wait -bw", Kind.SWITCH, _NOTHING),
    flag("--listener-name", Kind.TEXT, "The listener of the brokers to use."),
    flag("--num-listener-threads -lt", Kind.NUMBER, _NOTHING, default=1),
    flag("--max-lookup-request -mlr", Kind.NUMBER, "Look-ups at a time.", default=50_000),
    flag("--proxy-url", Kind.TEXT, "Not used: give the proxy as --service-url."),
    flag("--proxy-protocol", Kind.TEXT, "Not used."),
    flag("--memory-limit -ml", Kind.SIZE, "Bytes that producers may hold; 0 means no limit.", default=0),
    flag("--num-topics -t --num-topic", Kind.NUMBER, "How many topics; one name becomes NAME-0, NAME-1, ….", default=1),
    flag("--test-duration -time", Kind.NUMBER, "End after so many seconds; 0: never.", default=0),
    flag("--json", Kind.SWITCH, "The result as one JSON value."),
    *PLACE_FLAGS,
)
_TRANSACTIONS: Final = (
    flag("--txn-timeout -tto", Kind.NUMBER, "Seconds that a transaction may take.", default=10),
    flag("--numMessage-perTransaction -nmt", Kind.NUMBER, "Messages in one transaction.", default=50),
    flag("--txn-enable -txn", Kind.SWITCH, "In transactions."),
    flag("-abort", Kind.SWITCH, "Abort the transactions."),
)
_HISTOGRAM: Final = flag("--histogram-file", Kind.TEXT, "Write the latencies here, as CSV: microseconds, percent.")

PRODUCE: Final = Command(
    "produce",
    "Publish at a rate; shows throughput, and latency from when each message was due.",
    _TOPICS,
    (
        flag("--num-test-threads -threads", Kind.NUMBER, _NOTHING, default=1),
        flag("--rate -r", Kind.NUMBER, "Messages a second over all topics; 0: as fast as possible.", default=100),
        flag("--size -s", Kind.NUMBER, "Bytes of a message.", default=1024),
        flag("--num-producers -n", Kind.NUMBER, "Producers of each topic.", default=1),
        flag("--separator", Kind.TEXT, "Between a topic's name and its number.", default="-"),
        flag("--send-timeout", Kind.NUMBER, "Seconds that a message may take; 0: any.", default=0),
        flag("--producer-name -pn", Kind.TEXT, "Name of the producer."),
        flag("--admin-url -au", Kind.TEXT, "Where a broker serves HTTP; for --partitions."),
        flag("--chunking -ch", Kind.SWITCH, "Cut messages that are too large."),
        flag("--max-outstanding -o", Kind.NUMBER, "Messages without receipt, of each producer [1000].", default=0),
        flag("--max-outstanding-across-partitions -p", Kind.NUMBER, "The same over all partitions.", default=0),
        flag("--partitions -np", Kind.NUMBER, "Make topics with so many partitions first."),
        flag("--num-messages -m", Kind.NUMBER, "End after so many; 0: never.", default=0),
        flag(
            "--compression -z",
            Kind.TEXT,
            "How payloads are packed.",
            default="NONE",
            choices="NONE LZ4 ZLIB ZSTD SNAPPY",
        ),
        flag("--payload-file -f", Kind.TEXT, "Take payloads from this file, by chance."),
        flag("--payload-delimiter -e", Kind.TEXT, "What parts payloads in it.", default="\\n"),
        flag("--batch-time-window -b", Kind.DECIMAL, "Milliseconds that a batch waits.", default=1.0),
        flag("--disable-batching -db", Kind.SWITCH, "Each message in an entry of its own."),
        flag("--batch-max-messages -bm", Kind.NUMBER, "Messages in a batch.", default=1000),
        flag("--batch-max-bytes -bb", Kind.NUMBER, "Bytes in a batch.", default=4 << 20),
        flag("--warmup-time", Kind.DECIMAL, "Seconds that are not counted.", default=1.0),
        flag("--encryption-key-name -k", Kind.TEXT, "Encrypt for this key."),
        flag("--encryption-key-value-file -v", Kind.TEXT, "File of the public key."),
        flag("--delay -d", Kind.NUMBER, "Seconds after which messages are delivered.", default=0),
        flag("--delay-range -dr", Kind.TEXT, "The same by chance, as 1,5."),
        flag("--set-event-time -set", Kind.SWITCH, "Give messages an event time."),
        flag("--exit-on-failure -ef", Kind.SWITCH, "End when a message is refused."),
        flag("--message-key-generation-mode -mk", Kind.TEXT, "Give messages keys.", choices="autoIncrement random"),
        flag(
            "--access-mode -am",
            Kind.TEXT,
            "How producers share a topic.",
            default="Shared",
            choices="Shared Exclusive WaitForExclusive ExclusiveWithFencing",
        ),
        flag("--format-payload -fp", Kind.SWITCH, "%i in a payload becomes its number, %t its time."),
        flag("--format-class -fc", Kind.TEXT, _NOTHING),
        *_TRANSACTIONS,
        _HISTOGRAM,
    ),
)
_QUEUE: Final = flag("--receiver-queue-size -q", Kind.NUMBER, "Messages that are fetched ahead.", default=1000)
_SLOW: Final = flag("--rate -r", Kind.DECIMAL, "Messages a second at most; 0 means no limit.", default=0.0)
CONSUME: Final = Command(
    "consume",
    "Receive as fast as possible; shows throughput, and latency from publishing.",
    _TOPICS,
    (
        flag("--num-consumers -n", Kind.NUMBER, "Consumers of each subscription.", default=1),
        flag("--num-subscriptions -ns", Kind.NUMBER, "Subscriptions of each topic.", default=1),
        flag("--subscriptions -ss --subscriber-name -s", Kind.TEXTS, "Names of the subscriptions.", default=["sub"]),
        flag(
            "--subscription-type -st",
            Kind.TEXT,
            "How consumers share.",
            default="Exclusive",
            choices="Exclusive Shared Failover Key_Shared",
        ),
        flag(
            "--subscription-position -sp",
            Kind.TEXT,
            "Where a new subscription starts.",
            default="Latest",
            choices="Latest Earliest",
        ),
        _SLOW,
        _QUEUE,
        flag(
            "--receiver-queue-size-across-partitions -p", Kind.NUMBER, "The same over all partitions.", default=50_000
        ),
        flag("--auto-scaled-receiver-queue-size -aq", Kind.SWITCH, _NOTHING),
        flag("--replicated -rs", Kind.SWITCH, "Subscriptions are kept equal in other clusters."),
        flag("--acks-delay-millis", Kind.NUMBER, "Acknowledgements are gathered so long.", default=100),
        flag("--num-messages -m", Kind.NUMBER, "End after so many; 0: never.", default=0),
        flag("--max_chunked_msg -mc", Kind.NUMBER, "Chunked messages that may be incomplete.", default=0),
        flag("--auto_ack_chunk_q_full -ac", Kind.SWITCH, "Acknowledge the oldest beyond that."),
        flag(
            "--expire_time_incomplete_chunked_messages -e",
            Kind.NUMBER,
            "Milliseconds until they are given up.",
            default=0,
        ),
        flag("--encryption-key-value-file -v", Kind.TEXT, "File of the private key."),
        flag("--batch-index-ack", Kind.SWITCH, "Acknowledge single messages of a batch."),
        flag("--pool-messages -pm", Kind.BOOLEAN, _NOTHING, default=True),
        *_TRANSACTIONS,
        flag("-ntxn", Kind.NUMBER, "Transactions to make; 0: any number.", default=0),
        _HISTOGRAM,
    ),
)
READ: Final = Command(
    "read",
    "Read as fast as possible without a subscription.",
    _TOPICS,
    (
        _SLOW,
        flag("--start-message-id -m", Kind.TEXT, "earliest, latest or LEDGER:ENTRY.", default="earliest"),
        _QUEUE,
        flag("--num-messages -n", Kind.NUMBER, "End after so many; 0: never.", default=0),
        flag("--use-tls", Kind.SWITCH, "Means nothing: the URL says it."),
    ),
)
TRANSACTION: Final = Command(
    "transaction",
    "Receive and send in transactions; shows how many end, and how long each takes from when it was due.",
    (),
    (
        flag("--topics-c", Kind.TEXTS, "Topics to receive from.", default=["test-consume"]),
        flag("--topics-p", Kind.TEXTS, "Topics to send to.", default=["test-produce"]),
        flag("--num-test-threads -threads", Kind.NUMBER, "Transactions at a time.", default=1),
        flag("--admin-url -au", Kind.TEXT, "Where a broker serves HTTP; for --partitions."),
        flag("--partitions -np", Kind.NUMBER, "Make the topics with so many partitions."),
        flag("--number-txn -ntxn", Kind.NUMBER, "End after so many; 0: never.", default=0),
        flag("--numMessage-perTransaction-produce -nmp", Kind.NUMBER, "Messages sent to each topic.", default=1),
        flag("--numMessage-perTransaction-consume -nmc", Kind.NUMBER, "Messages of each subscription.", default=1),
        flag("--txn-timeout -tto", Kind.NUMBER, "Seconds that a transaction may take.", default=5),
        flag("--txn-disable", Kind.SWITCH, "The same without transactions."),
        flag("-abort", Kind.SWITCH, "Abort the transactions."),
        flag("-txnRate", Kind.NUMBER, "Transactions a second; 0: as fast as possible.", default=0),
        flag("--num-subscriptions -ns", Kind.NUMBER, "Subscriptions of each topic.", default=1),
        flag("--subscriptions -ss", Kind.TEXTS, "Names of the subscriptions.", default=["sub"]),
        flag(
            "--subscription-type -st",
            Kind.TEXT,
            "How consumers share.",
            default="Shared",
            choices="Exclusive Shared Failover Key_Shared",
        ),
        flag(
            "--subscription-position -sp",
            Kind.TEXT,
            "Where a new subscription starts.",
            default="Earliest",
            choices="Latest Earliest",
        ),
        _QUEUE,
        flag("--replicated -rs", Kind.SWITCH, "Subscriptions are kept equal in other clusters."),
        _HISTOGRAM,
    ),
)
COMMANDS: Final = {each.name: each for each in (PRODUCE, CONSUME, READ, TRANSACTION)}
