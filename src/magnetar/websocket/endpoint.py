# SPDX-License-Identifier: Apache-2.0
"""What a path of the WebSocket API asks for: a producer, a consumer or a reader, and of which topics.

`/ws/v2/producer|consumer|reader/{domain}/{tenant}/{namespace}/{topic}`, a consumer's followed by its subscription;
`/ws/v3/consumer/{subscription}` names its topics or a pattern in the query.
Decides.
"""

from collections.abc import Mapping
from enum import Enum, unique
from typing import Final, NamedTuple

from magnetar.errors import BadName, BadSetting, TopicNotFound
from magnetar.names import NamespaceName, TopicDomain, TopicName, check_subscription, decode_name

PREFIX: Final = "/ws/"
TOPICS_MAX: Final = 1_000

_WORDS: Final = ("producer", "consumer", "reader")
# Before the topic: "", ws, v2, the kind, domain, tenant, namespace.
_PARTS_BEFORE_TOPIC: Final = 7


@unique
class Kind(Enum):
    PRODUCER = "producer"
    CONSUMER = "consumer"
    READER = "reader"


class Endpoint(NamedTuple):
    kind: Kind
    topics: tuple[TopicName, ...]
    subscription: str = ""
    # Instead of topics.
    pattern: str = ""

    @property
    def name(self) -> str:
        """What it is about: its topic, the first of several, or the pattern."""
        return self.pattern or str(self.topics[0])

    @property
    def namespace(self) -> str:
        if self.topics:
            return str(self.topics[0].namespace)
        parts = self.pattern.rpartition("://")[2].split("/")
        return "/".join(parts[:2]) if len(parts) > 2 else "public/default"


def endpoint_of(path: str, parameters: Mapping[str, str]) -> Endpoint:
    """TopicNotFound where nothing is served; BadName or BadSetting where what is served is asked for wrongly."""
    parts = path.split("/")
    match parts[:4]:
        case ["", "ws", "v3", "consumer"]:
            return _many_topics(parts[4:], parameters)
        case ["", "ws", "v2", word] if word in _WORDS:
            return _one_topic(Kind(word), parts)
        case ["", "ws", word, _] if word in _WORDS:
            raise BadName("Topics of the first version, with a cluster in their name, are not served: use /ws/v2")
    raise TopicNotFound("There is nothing here: the WebSocket API is /ws/v2/producer, /ws/v2/consumer, /ws/v2/reader")


def _one_topic(kind: Kind, parts: list[str]) -> Endpoint:
    subscription = ""
    named = parts[_PARTS_BEFORE_TOPIC:]
    if kind is Kind.CONSUMER:
        if len(named) != 2 or not named[1]:
            raise BadName("A consumer's path is /ws/v2/consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}")
        subscription = check_subscription(decode_name(named.pop()))
    name = "/".join(part for part in named if part)
    if not name:
        raise BadName(f"The path should be /ws/v2/{kind.value}/{{domain}}/{{tenant}}/{{namespace}}/{{topic}}")
    if parts[4] not in tuple(TopicDomain):
        raise BadName(f"{parts[4][:50]!r} should be persistent or non-persistent")
    namespace = NamespaceName(decode_name(parts[5]), decode_name(parts[6]))
    return Endpoint(kind, (TopicName(TopicDomain(parts[4]), namespace, decode_name(name)),), subscription)


def _many_topics(named: list[str], parameters: Mapping[str, str]) -> Endpoint:
    if len(named) != 1 or not named[0]:
        raise BadName("The path should be /ws/v3/consumer/{subscription}")
    subscription = check_subscription(decode_name(named[0]))
    topics, pattern = parameters.get("topics"), parameters.get("topicsPattern")
    if (topics is None) == (pattern is None):
        raise BadSetting("Should set topics or topicsPattern, and not both")
    if pattern is not None:
        return Endpoint(Kind.CONSUMER, (), subscription, pattern)
    names = tuple(dict.fromkeys(TopicName.parse(each.strip()) for each in (topics or "").split(",")))
    if len(names) > TOPICS_MAX:
        raise BadSetting(f"{len(names)} topics are more than the {TOPICS_MAX} that one consumer may have")
    return Endpoint(Kind.CONSUMER, names, subscription)
