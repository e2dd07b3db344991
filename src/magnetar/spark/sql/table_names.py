# SPDX-License-Identifier: Apache-2.0
"""Which topic a table's name means, and under which names a message's metadata can be asked for.

`"tenant/namespace".topic`, `tenant.namespace.topic`, `namespace.topic` in the current tenant, `topic` in the current
namespace, or a topic's whole name in quotes. Never asks a broker.
Decides.
"""

import re
from collections.abc import Sequence
from typing import Final

from magnetar.errors import BadName
from magnetar.names import NamespaceName, TopicName

DEFAULT_NAMESPACE: Final = "public/default"
# Spark reads these from files: `select * from parquet.\`path\``.
FILE_FORMATS: Final = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "binaryfile"})
GLOBAL_VIEWS: Final = "global_temp"

# The names of Pulsar SQL, and what they are in the names of the data source.
HIDDEN: Final = {
    "__partition__": "__partition",
    "__publish_time__": "__publishTime",
    "__event_time__": "__eventTime",
    "__message_id__": "__messageId",
    "__sequence_id__": "__sequenceId",
    "__producer_name__": "__producerName",
    "__key__": "cast(__key as string)",
    "__properties__": "to_json(__messageProperties)",
}
# The column that each of those is made from.
HIDDEN_FROM: Final = {name: (re.search(r"__\w+", text) or [text])[0] for name, text in HIDDEN.items()}
_WORD: Final = re.compile(r"__\w+")


def topic_of(parts: Sequence[str], namespace: str = DEFAULT_NAMESPACE) -> str:
    """The topic's whole name. Raises BadName."""
    tenant = namespace.partition("/")[0]
    if len(parts) == 1:
        whole = "/" in parts[0]
        return str(TopicName.parse(parts[0] if whole else f"persistent://{namespace}/{parts[0]}"))
    if len(parts) == 2:
        space = parts[0] if "/" in parts[0] else f"{tenant}/{parts[0]}"
        return str(TopicName.parse(f"persistent://{space}/{parts[1]}"))
    if len(parts) == 3:
        return str(TopicName.parse(f"persistent://{'/'.join(parts)}"))
    raise BadName(f'{".".join(parts)} is no topic: write tenant.namespace.topic or "tenant/namespace".topic')


def namespace_of(text: str, current: str = DEFAULT_NAMESPACE) -> str:
    """A namespace as people write it: tenant/namespace, tenant.namespace, or a namespace of the current tenant."""
    name = text.strip().strip('"`')
    if "/" not in name:
        name = name.replace(".", "/", 1) if "." in name else f"{current.partition('/')[0]}/{name}"
    return str(NamespaceName.parse(name))


def is_elsewhere(parts: Sequence[str]) -> bool:
    """Names that mean files or views of other sessions, and never a topic."""
    return len(parts) == 2 and (parts[0].lower() in FILE_FORMATS or parts[0].lower() == GLOBAL_VIEWS)


def mentioned(text: str) -> frozenset[str]:
    """Every name in a query that begins as metadata does; a word too many costs nothing: what is unused is dropped."""
    return frozenset(_WORD.findall(text))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
