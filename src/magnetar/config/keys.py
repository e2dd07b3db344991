# SPDX-License-Identifier: Apache-2.0
"""The one table of settings: Pulsar's and BookKeeper's keys, the field each fills, and what it allows.

A field that upstream has no key for gets a key of its own, `owner.field`, made from the settings class. A key may fill
several fields. Where several rows fill one field, the later row wins. Never parses a file, never builds settings.
Decides.
"""

from dataclasses import fields
from typing import Final

from magnetar.config.admin import AdminSettings
from magnetar.config.admin_keys import ADMIN_KEYS
from magnetar.config.balance import BalanceSettings
from magnetar.config.balance_keys import BALANCE_KEYS
from magnetar.config.bookie import BookieSettings
from magnetar.config.bookie_server import BookieServerSettings
from magnetar.config.bookkeeper_keys import BOOKKEEPER_KEYS
from magnetar.config.broker import BrokerSettings
from magnetar.config.key import BROKER, PROXY, STANDALONE, Key, Order
from magnetar.config.ledger import ChannelSettings, LedgerSettings, PlacementSettings, RepairSettings
from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.config.own_meanings import OWN_MEANINGS
from magnetar.config.policy_keys import POLICY_KEYS
from magnetar.config.proxy import ProxySettings
from magnetar.config.proxy_keys import PROXY_KEYS
from magnetar.config.publish_keys import PUBLISH_KEYS
from magnetar.config.pulsar_keys import PULSAR_KEYS
from magnetar.config.replication_keys import REPLICATION_KEYS
from magnetar.config.runtime import RuntimeSettings
from magnetar.config.security import SecuritySettings
from magnetar.config.security_keys import SECURITY_CAUTIONS, SECURITY_KEYS
from magnetar.config.transaction_keys import TRANSACTION_KEYS
from magnetar.config.values import Value, Whole, value_of_type
from magnetar.config.websocket import WebSocketSettings
from magnetar.config.websocket_keys import WEBSOCKET_KEYS

OWNERS: Final[dict[str, type]] = {
    "broker": BrokerSettings,
    "security": SecuritySettings,
    "proxy": ProxySettings,
    "admin": AdminSettings,
    "websocket": WebSocketSettings,
    "balance": BalanceSettings,
    "managed_ledger": ManagedLedgerSettings,
    "ledger": LedgerSettings,
    "placement": PlacementSettings,
    "channel": ChannelSettings,
    "repair": RepairSettings,
    "bookie": BookieSettings,
    "bookie_server": BookieServerSettings,
    "metadata": MetadataSettings,
    "runtime": RuntimeSettings,
}

# What a role takes for granted where it differs from the classes' defaults, which are those of standalone.
ROLE_DEFAULTS: Final[dict[str, dict[str, str]]] = {
    BROKER: {
        "managedLedgerDefaultEnsembleSize": "2",
        "managedLedgerDefaultWriteQuorum": "2",
        "managedLedgerDefaultAckQuorum": "2",
        "brokerDeleteInactiveTopicsEnabled": "true",
        "webSocketServiceEnabled": "false",
    },
    PROXY: {"webSocketServiceEnabled": "false"},
}

# What a role cannot give, whatever a file written for another role says: standalone has one bookie.
ROLE_LIMITS: Final[dict[str, dict[tuple[str, str], int]]] = {
    STANDALONE: {
        ("managed_ledger", "ensemble_size"): 1,
        ("managed_ledger", "write_quorum"): 1,
        ("managed_ledger", "ack_quorum"): 1,
    },
}

ORDERS: Final[tuple[Order, ...]] = (
    Order("managed_ledger", "ack_quorum", "managed_ledger", "write_quorum"),
    Order("managed_ledger", "write_quorum", "managed_ledger", "ensemble_size"),
    Order("managed_ledger", "rollover_age_min_ms", "managed_ledger", "rollover_age_max_ms"),
    Order("bookie", "disk_usage_low", "bookie", "disk_usage_max"),
    Order("broker", "message_bytes_max", "bookie", "entry_bytes_max"),
    Order("broker", "message_bytes_max", "channel", "frame_bytes_max"),
    Order("broker", "message_bytes_max", "broker", "process_publish_bytes_max"),
)

# Plain ports that an empty value closes where there is one with TLS: key, field of `broker`, field of `security`.
PLAIN_PORTS: Final[tuple[tuple[str, str, str], ...]] = (
    ("brokerServicePort", "port", "tls_port"),
    ("webServicePort", "http_port", "https_port"),
)

# Allowed, but someone should say so aloud.
CAUTIONS: Final[dict[tuple[str, object], str]] = {
    **SECURITY_CAUTIONS,
    (
        "journalSyncData",
        False,
    ): "acknowledged messages are lost when the machine fails: use it for throw-away data only",
}


def _kind(field: str, annotation: object) -> Value:
    """A limit of nothing would stop everything: limits start at one."""
    return Whole(1) if annotation is int and field.endswith("_max") else value_of_type(annotation)


_UPSTREAM_KEYS: Final = (
    *PULSAR_KEYS,
    *PUBLISH_KEYS,
    *TRANSACTION_KEYS,
    *REPLICATION_KEYS,
    *POLICY_KEYS,
    *SECURITY_KEYS,
    *ADMIN_KEYS,
    *WEBSOCKET_KEYS,
    *BALANCE_KEYS,
    *PROXY_KEYS,
    *BOOKKEEPER_KEYS,
)


def _own_keys() -> tuple[Key, ...]:
    described = {(key.owner, key.field) for key in _UPSTREAM_KEYS}
    return tuple(
        Key(name, owner, field.name, _kind(field.name, field.type), OWN_MEANINGS.get(name, ""))
        for owner, settings in OWNERS.items()
        for field in fields(settings)
        for name in (f"{owner}.{field.name}",)
        if (owner, field.name) not in described
    )


KEYS: Final[tuple[Key, ...]] = (*_UPSTREAM_KEYS, *_own_keys())
