# SPDX-License-Identifier: Apache-2.0
"""`magnetar client`: send and receive from the command line, as pulsar-client does.

Messages are printed as pulsar-client prints them, or as one JSON object to a line. Exit code 0 once all were sent or
received.
Carries.
"""

import asyncio
import base64
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.access import access_of
from magnetar.cli.client_commands import COMMANDS, COMMON
from magnetar.cli.pace import Pace
from magnetar.cli.values import WrongUse
from magnetar.cli.words import Given

PAYLOAD_FILE_BYTES_MAX: Final = 1 << 30
RECEIVER_QUEUE: Final = 1000


def run_client(words: Sequence[str], program: str = "magnetar client") -> int:
    return exits.ended(lambda: _run(list(words), program))


def _run(words: list[str], program: str) -> int:
    name, before, rest = _command_word(words)
    if name is None:
        lines = [f"Usage: {program} COMMAND …", ""]
        lines += [f"  {each.name:8}  {each.help}" for each in COMMANDS.values()]
        sys.stdout.write("\n".join(lines) + "\n")
        return exits.OK
    command = COMMANDS.get(name)
    if command is None:
        raise WrongUse(f"{name!r} is no command; there are {', '.join(COMMANDS)}")
    if {"--help", "-h"} & set(rest):
        sys.stdout.write(command.help_text(f"{program} {name}", more=COMMON))
        return exits.OK
    given = command.read([*before, *rest], more=COMMON)

    from magnetar.cli.looping import run_with_client

    settings = {} if given["memory_limit"] is None else {"memory_limit_bytes": given["memory_limit"]}
    run = {"produce": _produce, "consume": _consume, "read": _read, "view": _view}[name]
    return run_with_client(access_of(given), lambda client: run(client, given), **settings)


def _command_word(words: list[str]) -> tuple[str | None, list[str], list[str]]:
    """The command among flags that stand before it."""
    takes = {name: each for each in COMMON for name in each.names}
    place = 0
    while place < len(words) and words[place].startswith("-"):
        if words[place] in ("--help", "-h"):
            return None, [], []
        each = takes.get(words[place].partition("=")[0])
        if each is None:
            raise WrongUse(f"there is no flag {words[place]} here; flags of a command follow it")
        place += 1 if each.kind.is_switch or "=" in words[place] else 2
    if place >= len(words):
        return None, [], []
    return words[place], words[:place], words[place + 1 :]


# --- sending -------------------------------------------------------------------------------------


async def _produce(client: Any, given: Given) -> int:
    from magnetar.client.encryption import KeyFiles

    contents = _contents(given)
    schema, wrap = _schema(given)
    options: dict[str, Any] = {
        "batching_enabled": not given["disable_batching"] and not given["chunking"],
        "chunking_enabled": given["chunking"],
        "block_if_queue_full": True,
    }
    if given["encryption_key_name"] is not None:
        options["encryption_key"] = given["encryption_key_name"]
        options["crypto_key_reader"] = KeyFiles(public_key_path=_path(given["encryption_key_value"]))
    producer = await client.create_producer(given["topic"], schema=schema, **options)
    loop = asyncio.get_running_loop()
    pace = Pace(given["rate"], loop.time())
    receipts = []
    for _ in range(given["num_produce"]):
        for content in contents:
            await asyncio.sleep(max(0.0, pace.next_due_s(loop.time()) - loop.time()))
            receipt = await producer.submit(
                wrap(content),
                given["properties"] or None,
                given["key"],
                disable_replication=given["disable_replication"],
            )
            receipts.append(receipt)
            if len(receipts) >= RECEIVER_QUEUE:
                for each in receipts:
                    await each
                receipts.clear()
    for each in receipts:
        await each
    sys.stdout.write(f"{given['num_produce'] * len(contents)} messages successfully produced\n")
    return exits.OK


def _contents(given: Given) -> list[bytes]:
    contents: list[bytes] = []
    separator = given["separator"]
    for typed in given["messages"] or ():
        contents += [text.encode() for text in (typed.split(separator) if separator else [typed])]
    contents += [_file(name) for name in given["files"] or ()]
    if not contents:
        raise WrongUse("produce needs --messages or --files")
    if given["num_produce"] < 1:
        raise WrongUse("--num-produce should be at least 1")
    return contents


def _file(name: str) -> bytes:
    try:
        path = Path(_path(name) or "")
        if path.stat().st_size > PAYLOAD_FILE_BYTES_MAX:
            raise WrongUse(f"{name} is larger than {PAYLOAD_FILE_BYTES_MAX} bytes")
        return path.read_bytes()
    except OSError as error:
        raise WrongUse(f"{name} cannot be read: {error.strerror}") from None


def _path(text: str | None) -> str | None:
    return None if text is None else text.removeprefix("file://").removeprefix("file:")


def _schema(given: Given) -> tuple[Any, Callable[[bytes], Any]]:
    """The schema of the messages, and what becomes of a text before it is encoded."""
    value_schema, decode = _simple_schema(given["value_schema"])
    key = given["key_value_key"].encode() if given["key_value_key"] is not None else None
    if given["key_value_key_file"] is not None:
        key = _file(given["key_value_key_file"])
    if key is None or given["key_value_encoding_type"] in (None, "none"):
        return value_schema, decode
    from magnetar.client.schema_key_value import KeyValue, KeyValueEncoding, KeyValueSchema

    key_schema, decode_key = _simple_schema(given["key_schema"])
    encoding = KeyValueEncoding(given["key_value_encoding_type"].upper())
    return KeyValueSchema(key_schema, value_schema, encoding), lambda content: KeyValue(
        decode_key(key), decode(content)
    )


def _simple_schema(text: str) -> tuple[Any, Callable[[bytes], Any]]:
    from magnetar.client.schema import BYTES, STRING

    kind, _, definition = text.partition(":")
    if kind == "bytes":
        return BYTES, bytes
    if kind == "string":
        return STRING, bytes.decode
    if kind in ("json", "avro"):
        from magnetar.client.schema_auto import schema_of
        from magnetar.client.schema_info import SchemaInfo, SchemaType

        return schema_of(SchemaInfo(SchemaType[kind.upper()], "", definition.encode())), json.loads
    raise WrongUse(f"{text!r} is no schema: bytes, string, avro:DEFINITION or json:DEFINITION")


# --- receiving -----------------------------------------------------------------------------------


def _reading_options(given: Given) -> dict[str, Any]:
    from magnetar.client.encryption import KeyFiles
    from magnetar.client.options import ConsumerCryptoFailureAction

    options: dict[str, Any] = {"crypto_failure_action": ConsumerCryptoFailureAction[given["crypto_failure_action"]]}
    if given["queue_size"] > 0:
        options["receiver_queue_size"] = given["queue_size"]
    if given["max_chunked_msg"] > 0:
        options["max_pending_chunked_message"] = given["max_chunked_msg"]
    options["auto_ack_oldest_chunked_message_on_queue_full"] = given["auto_ack_chunk_q_full"]
    if given["encryption_key_value"] is not None:
        options["crypto_key_reader"] = KeyFiles(private_key_path=_path(given["encryption_key_value"]))
    return options


def _read_schema(given: Given) -> Any:
    from magnetar.client.schema import BYTES, STRING
    from magnetar.client.schema_auto import AutoConsumeSchema

    found = {"bytes": BYTES, "string": STRING, "auto_consume": AutoConsumeSchema()}.get(given["schema_type"])
    if found is None:
        raise WrongUse(f"{given['schema_type']!r} is no schema: bytes, string or auto_consume")
    return found


async def _consume(client: Any, given: Given) -> int:
    from magnetar.client.options import ConsumerType, InitialPosition

    topic = re.compile(given["topic"]) if given["regex"] else given["topic"]
    options = {
        **_reading_options(given),
        "consumer_type": ConsumerType[given["subscription_type"].replace("_", "")],
        "initial_position": InitialPosition[given["subscription_position"]],
        "replicate_subscription_state_enabled": given["replicated"],
        "durable": given["subscription_mode"] == "Durable",
    }
    name = given["subscription_name"]
    consumer = await client.subscribe(topic, name, schema=_read_schema(given), **options)
    if given["start_timestamp"] > 0:
        await consumer.seek(given["start_timestamp"])

    async def take() -> Any:
        message = await consumer.receive()
        await consumer.acknowledge(message)
        return message

    return await _show_all(take, given, until_ms=given["end_timestamp"])


async def _read(client: Any, given: Given) -> int:
    from magnetar.ids import EARLIEST_MESSAGE, LATEST_MESSAGE, MessageId

    start = {"latest": LATEST_MESSAGE, "earliest": EARLIEST_MESSAGE}.get(given["start_message_id"])
    if start is None:
        ledger, _, entry = given["start_message_id"].partition(":")
        if not (ledger.isdigit() and entry.isdigit()):
            raise WrongUse(f"{given['start_message_id']!r} is no message id: latest, earliest or LEDGER:ENTRY")
        start = MessageId(int(ledger), int(entry))
    reader = await client.create_reader(
        given["topic"],
        start,
        schema=_read_schema(given),
        start_message_id_inclusive=given["start_message_id_inclusive"],
        **_reading_options(given),
    )
    return await _show_all(reader.read_next, given)


async def _show_all(take: Callable[[], Any], given: Given, until_ms: int | None = None) -> int:
    loop = asyncio.get_running_loop()
    pace = Pace(given["rate"], loop.time())
    shown = 0
    while given["num_messages"] <= 0 or shown < given["num_messages"]:
        await asyncio.sleep(max(0.0, pace.next_due_s(loop.time()) - loop.time()))
        message = await take()
        if until_ms is not None and message.publish_timestamp() >= until_ms:
            continue
        if not given["hide_content"]:
            sys.stdout.write(message_text(message, given) + "\n")
            sys.stdout.flush()
        shown += 1
    if given["hide_content"] or not given["json"]:
        sys.stderr.write(f"{shown} messages successfully consumed\n")
    return exits.OK


def message_text(message: Any, given: Given) -> str:
    """A message as pulsar-client prints it, or as one line of JSON."""
    content = _content(message, as_hex=given["hex"], schema=given["schema_type"])
    key = message.partition_key() if message.has_key() else None
    if given["json"]:
        fields = {
            "messageId": str(message.message_id()),
            "topic": message.topic_name(),
            "key": key,
            "properties": message.properties(),
            "publishTime": message.publish_timestamp(),
            "eventTime": message.event_timestamp(),
            "content": content,
        }
        return json.dumps(fields)
    pairs = ", ".join(f"{name}={text}" for name, text in message.properties().items())
    lines = ["----- got message -----"]
    if given["print_metadata"]:
        lines.append(
            f"publishTime:[{message.publish_timestamp()}], eventTime:[{message.event_timestamp()}], "
            f"messageId:[{message.message_id()}], producerName:[{message.producer_name()}], "
            f"sequenceId:[{message.sequence_id()}], redeliveryCount:[{message.redelivery_count()}], "
            f"topic:[{message.topic_name()}]"
        )
    lines.append(f"key:[{'null' if key is None else key}], properties:[{pairs}], content:{content}")
    return "\n".join(lines)


def _content(message: Any, *, as_hex: bool, schema: str) -> str:
    if as_hex:
        return str(message.data().hex(" "))
    if schema != "bytes":
        return _text_of(message.value())
    try:
        return str(message.data().decode())
    except UnicodeDecodeError:
        return base64.b64encode(message.data()).decode()


def _text_of(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else json.dumps(value, default=str)


async def _view(client: Any, given: Given) -> int:
    view = await client.create_table_view(given["topic"], schema=_read_schema(given))

    def tell(key: str, value: Any) -> None:
        if given["key"] in (None, key):
            text = None if value is None else _text_of(value)
            line = json.dumps({"key": key, "value": text}) if given["json"] else f"{key}\t{text}"
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    if not given["follow"]:
        view.for_each(tell)
        return exits.OK
    view.for_each_and_listen(tell)
    await asyncio.get_running_loop().create_future()
    return exits.OK
