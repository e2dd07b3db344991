# SPDX-License-Identifier: Apache-2.0
"""Names that people give: tenants, namespaces, topics with their partitions, subscriptions, clusters.

Owns what is allowed, the one full form of each name, and the encoded forms that Pulsar's metadata and REST use. Never
knows whether a thing of that name exists. Every refusal is a BadName that says which part is wrong and why.

Tenant, namespace and cluster names are letters, digits and `_ - = : .`; a topic's own name and a subscription's name
are any text without '/' (topics) and control characters, encoded wherever they become part of a path.
Decides.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Final
from urllib.parse import quote_plus, unquote_plus

from magnetar.errors import BadName

ENTITY_CHARACTERS_MAX: Final = 255
SUBSCRIPTION_BYTES_MAX: Final = 1024
# A name is sent in HTTP request lines, where each byte may take three characters and servers stop at 8 KiB.
TOPIC_BYTES_MAX: Final = 2048
PARTITION_INDEX_MAX: Final = 2**31 - 1
PARSED_NAMES_MAX: Final = 16_384

DEFAULT_TENANT: Final = "public"
DEFAULT_NAMESPACE: Final = "default"
PARTITION_SUFFIX: Final = "-partition-"

MANAGED_LEDGERS_ROOT: Final = "/managed-ledgers"
PARTITIONED_TOPICS_ROOT: Final = "/admin/partitioned-topics"
POLICIES_ROOT: Final = "/admin/policies"
LOCAL_POLICIES_ROOT: Final = "/admin/local-policies"
CLUSTERS_ROOT: Final = "/admin/clusters"
SCHEMAS_ROOT: Final = "/schemas"

_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
_NOT_ENTITY = re.compile(r"[^-=:.\w]", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_PARTITION = re.compile(rf"(.*){PARTITION_SUFFIX}(0|[1-9][0-9]{{0,9}})", re.DOTALL)
_PATH_STEPS = (".", "..")


class TopicDomain(StrEnum):
    PERSISTENT = "persistent"
    NON_PERSISTENT = "non-persistent"


_DOMAINS: Final = {domain.value: domain for domain in TopicDomain}


def encode_name(text: str) -> str:
    """The form that Pulsar gives a name inside a path: as an HTML form encodes it, with '~' encoded and '*' not."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def decode_name(text: str) -> str:
    """The reverse of encode_name."""
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        raise BadName(f"encoded name {_quoted(text)} is not UTF-8") from None


def check_tenant(text: str) -> str:
    """The same text if it can name a tenant."""
    return _checked_entity("tenant", text)


def check_cluster(text: str) -> str:
    """The same text if it can name a cluster."""
    return _checked_entity("cluster", text)


def check_subscription(text: str) -> str:
    """The same text if it can name a subscription."""
    return _checked_text("subscription", text, SUBSCRIPTION_BYTES_MAX)


def tenant_path(tenant: str) -> str:
    """Where Pulsar keeps a tenant's record."""
    return f"{POLICIES_ROOT}/{tenant}"


def cluster_path(cluster: str) -> str:
    """Where Pulsar keeps a cluster's record."""
    return f"{CLUSTERS_ROOT}/{cluster}"


class NamespaceName:
    """`tenant/namespace`. Equal when the text is equal."""

    __slots__ = ("_full", "name", "tenant")

    def __init__(self, tenant: str, name: str) -> None:
        self.tenant = _checked_entity("tenant", tenant)
        self.name = _checked_entity("namespace", name)
        self._full = f"{tenant}/{name}"

    @staticmethod
    def parse(text: str) -> "NamespaceName":
        return _parse_namespace(text)

    @property
    def policies_path(self) -> str:
        return f"{POLICIES_ROOT}/{self._full}"

    @property
    def local_policies_path(self) -> str:
        return f"{LOCAL_POLICIES_ROOT}/{self._full}"

    def managed_ledgers_path(self, domain: TopicDomain = TopicDomain.PERSISTENT) -> str:
        """The parent of its topics' managed ledgers."""
        return f"{MANAGED_LEDGERS_ROOT}/{self._full}/{domain}"

    def topic(self, local_name: str, domain: TopicDomain = TopicDomain.PERSISTENT) -> "TopicName":
        return TopicName(domain, self, local_name)

    def __str__(self) -> str:
        return self._full

    def __repr__(self) -> str:
        return f"NamespaceName({self._full!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamespaceName) and self._full == other._full

    def __lt__(self, other: "NamespaceName") -> bool:
        return self._full < other._full

    def __hash__(self) -> int:
        return hash(self._full)


class TopicName:
    """`domain://tenant/namespace/local-name`. Equal when the full text is equal; immutable by agreement.

    `partition_index` is -1 unless the local name ends in `-partition-N`.
    """

    __slots__ = ("_full", "domain", "encoded_local_name", "local_name", "namespace", "partition_index")

    def __init__(self, domain: TopicDomain, namespace: NamespaceName, local_name: str) -> None:
        self.domain = domain
        self.namespace = namespace
        self.local_name = _checked_text("topic", local_name, TOPIC_BYTES_MAX)
        if "/" in local_name:
            raise BadName(f"topic name {_quoted(local_name)} contains '/', which only separates tenant and namespace")
        encoded = encode_name(local_name)
        # Most names need no encoding, and then one text is enough.
        self.encoded_local_name = self.local_name if encoded == local_name else encoded
        self.partition_index = _partition_index(local_name)
        self._full = f"{domain}://{namespace}/{local_name}"

    @staticmethod
    def parse(text: str) -> "TopicName":
        """Read `t`, `tenant/ns/t` or `domain://tenant/ns/t`. Names seen lately cost one look-up."""
        return _parse_topic(text)

    @staticmethod
    def from_persistence_name(text: str) -> "TopicName":
        """The reverse of persistence_name."""
        parts = text.split("/")
        if len(parts) != 4:
            raise BadName(f"{_quoted(text)} is no managed ledger's name: it should be tenant/namespace/domain/topic")
        tenant, namespace, domain, encoded = parts
        return TopicName(_domain(domain), NamespaceName(tenant, namespace), decode_name(encoded))

    @property
    def tenant(self) -> str:
        return self.namespace.tenant

    @property
    def is_persistent(self) -> bool:
        return self.domain is TopicDomain.PERSISTENT

    @property
    def is_partition(self) -> bool:
        return self.partition_index >= 0

    @property
    def base(self) -> "TopicName":
        """The partitioned topic that this is a partition of; itself when it is none."""
        if self.partition_index < 0:
            return self
        return TopicName(self.domain, self.namespace, self.local_name.rpartition(PARTITION_SUFFIX)[0])

    def partition(self, index: int) -> "TopicName":
        """One partition of this topic."""
        if not 0 <= index <= PARTITION_INDEX_MAX:
            raise BadName(f"partition index {index} is not between 0 and {PARTITION_INDEX_MAX}")
        if self.partition_index == index:
            return self
        if self.partition_index >= 0:
            raise BadName(f"{_quoted(self._full)} is a partition already and has no partition {index}")
        return TopicName(self.domain, self.namespace, f"{self.local_name}{PARTITION_SUFFIX}{index}")

    @property
    def persistence_name(self) -> str:
        """What Pulsar calls the topic's managed ledger."""
        return f"{self.namespace}/{self.domain}/{self.encoded_local_name}"

    @property
    def managed_ledger_path(self) -> str:
        return f"{MANAGED_LEDGERS_ROOT}/{self.persistence_name}"

    @property
    def partitioned_metadata_path(self) -> str:
        """Where Pulsar keeps the number of partitions, for a partition as for its base."""
        return f"{PARTITIONED_TOPICS_ROOT}/{self.base.persistence_name}"

    @property
    def lookup_name(self) -> str:
        """The form in REST paths and look-ups."""
        return f"{self.domain}/{self.namespace}/{self.encoded_local_name}"

    @property
    def schema_name(self) -> str:
        """All partitions share the schemas of their base, whatever the domain."""
        return f"{self.namespace}/{self.base.encoded_local_name}"

    @property
    def schema_path(self) -> str:
        return f"{SCHEMAS_ROOT}/{self.schema_name}"

    def __str__(self) -> str:
        return self._full

    def __repr__(self) -> str:
        return f"TopicName({self._full!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicName) and self._full == other._full

    def __lt__(self, other: "TopicName") -> bool:
        return self._full < other._full

    def __hash__(self) -> int:
        return hash(self._full)


def in_order(names: Iterable[TopicName]) -> list[TopicName]:
    """Sorted by their texts, without a call for each comparison: there may be very many."""
    return sorted(names, key=attrgetter("_full"))


@lru_cache(maxsize=PARSED_NAMES_MAX)
def _parse_namespace(text: str) -> NamespaceName:
    parts = text.split("/", 3)
    if len(parts) == 3:
        raise BadName(
            f"namespace {_quoted(text)} has the old form tenant/cluster/namespace, which is not supported: "
            "use tenant/namespace"
        )
    if len(parts) != 2:
        raise BadName(f"namespace {_quoted(text)} should be tenant/namespace")
    return NamespaceName(*parts)


@lru_cache(maxsize=PARSED_NAMES_MAX)
def _parse_topic(text: str) -> TopicName:
    domain = TopicDomain.PERSISTENT
    scheme, separator, rest = text.partition("://")
    if separator:
        domain = _domain(scheme)
    else:
        rest = text
    # Slashes beyond the fourth part cannot make the name right; there is no need to cut them all.
    parts = rest.split("/", 4)
    if len(parts) == 1 and not separator:
        return TopicName(domain, _parse_namespace(f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}"), rest)
    if len(parts) == 3:
        return TopicName(domain, _parse_namespace(f"{parts[0]}/{parts[1]}"), parts[2])
    if len(parts) == 4 and all(parts):
        raise BadName(
            f"topic {_quoted(text)} has the old form tenant/cluster/namespace/topic, which is not supported: "
            "use tenant/namespace/topic"
        )
    forms = "domain://tenant/namespace/topic" if separator else "topic or tenant/namespace/topic"
    raise BadName(f"topic {_quoted(text)} should be {forms}")


def _domain(text: str) -> TopicDomain:
    domain = _DOMAINS.get(text.lower())
    if domain is not None:
        return domain
    raise BadName(f"topic domain {_quoted(text)} should be persistent or non-persistent")


def _partition_index(local_name: str) -> int:
    if PARTITION_SUFFIX not in local_name:
        return -1
    match = _PARTITION.fullmatch(local_name)
    if match is None:
        return -1
    index = int(match[2])
    if index > PARTITION_INDEX_MAX:
        return -1
    if not match[1].strip():
        raise BadName(f"topic name {_quoted(local_name)} is a partition of a topic without a name")
    return index


def _checked_entity(kind: str, text: str) -> str:
    if _ENTITY.fullmatch(text) and len(text) <= ENTITY_CHARACTERS_MAX and text not in _PATH_STEPS:
        return text
    if not text:
        raise BadName(f"{kind} name is empty")
    if len(text) > ENTITY_CHARACTERS_MAX:
        raise BadName(f"{kind} name {_quoted(text)} is longer than {ENTITY_CHARACTERS_MAX} characters")
    if text in _PATH_STEPS:
        raise BadName(f"{kind} name {_quoted(text)} is a step in a path, not a name")
    wrong = _NOT_ENTITY.search(text)
    assert wrong is not None
    raise BadName(f"{kind} name {_quoted(text)} contains {wrong[0]!r}: allowed are letters, digits and _ - = : .")


def _checked_text(kind: str, text: str, bytes_max: int) -> str:
    if not text.strip():
        raise BadName(f"{kind} name is empty")
    if len(text) > bytes_max:
        raise BadName(f"{kind} name {_quoted(text)} is longer than {bytes_max} bytes")
    wrong = _CONTROL.search(text)
    if wrong is not None:
        raise BadName(f"{kind} name {_quoted(text)} contains the control character {wrong[0]!r}")
    if text in _PATH_STEPS:
        raise BadName(f"{kind} name {_quoted(text)} is a step in a path, not a name")
    if len(text.encode()) > bytes_max:
        raise BadName(f"{kind} name {_quoted(text)} is longer than {bytes_max} bytes")
    return text


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= 120 else f"{text[:100]!r}… ({len(text)} characters)"


ASSIGN_TOPIC: Final = TopicName.parse("persistent://pulsar/system/transaction_coordinator_assign")
"""Whoever owns one of its partitions is the transaction coordinator of that number."""
