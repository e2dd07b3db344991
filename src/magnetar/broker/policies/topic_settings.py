# SPDX-License-Identifier: Apache-2.0
"""A topic's policies as the settings that its parts are built with: the broker's own, with the policies over them.

So that whatever heeds a setting heeds the policy, and nothing needs to know both.
Decides.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from magnetar.broker.policies.effective import TopicPolicies
from magnetar.config.broker import BrokerSettings
from magnetar.config.managed_ledger import ManagedLedgerSettings

_MINUTE_MS = 60_000
_MIB = 1024 * 1024
# Shadow topics learn of the last message after twice this, if none follows it.
_SHADOWED_MS = 20


def topic_settings(settings: BrokerSettings, policies: TopicPolicies) -> BrokerSettings:
    """What the broker's parts of one topic are told."""
    changed = replace(
        settings,
        message_bytes_max=min(settings.message_bytes_max, policies.message_bytes_max),
        producers_per_topic_max=policies.producers_max,
        consumers_per_topic_max=policies.consumers_max,
        consumers_per_subscription_max=policies.subscription_consumers_max,
        subscriptions_per_topic_max=policies.subscriptions_max,
        unacked_messages_per_consumer_max=policies.consumer_unacked_max,
        unacked_messages_per_subscription_max=policies.subscription_unacked_max,
        deduplication_enabled=policies.deduplication_enabled,
        deduplication_snapshot_interval_s=policies.deduplication_snapshot_interval_s,
        delayed_delivery_enabled=policies.delayed_delivery.active,
        delayed_delivery_tick_ms=policies.delayed_delivery.tick_ms,
        delayed_delivery_delay_max_ms=policies.delayed_delivery.delay_ms_max,
        allow_auto_subscription_creation=policies.subscription_creation,
        subscription_types=policies.subscription_types,
        encryption_required=policies.encryption_required,
        pause_until_acks_persist=policies.pause_until_acks_persist,
        entry_filter_names=(
            policies.entry_filters if settings.entry_filters_overridable else settings.entry_filter_names
        ),
        topic_publish_messages_per_s=max(0, policies.publish_rate.messages),
        topic_publish_bytes_per_s=max(0, policies.publish_rate.bytes),
        subscribes_per_consumer=max(0, policies.subscribe_rate.subscribes),
        subscribe_rate_period_s=policies.subscribe_rate.period_s,
    )
    shared: BrokerSettings = _one_of_equals(changed)
    return shared


def storage_settings(settings: ManagedLedgerSettings, policies: TopicPolicies) -> ManagedLedgerSettings:
    """What the managed ledger of one topic is told; copies hold from its next ledger on."""
    retention, copies = policies.retention, policies.persistence
    interval_ms = round(1000 / copies.mark_delete_rate) if copies.mark_delete_rate > 0 else 0
    changed = replace(
        settings,
        retention_ms=_in_units(retention.minutes, _MINUTE_MS),
        retention_bytes=_in_units(retention.megabytes, _MIB),
        ensemble_size=copies.ensemble,
        write_quorum=copies.write_quorum,
        ack_quorum=copies.ack_quorum,
        bookie_groups=policies.bookie_affinity.primary,
        bookie_groups_secondary=policies.bookie_affinity.secondary,
        confirmed_told_interval_ms=_SHADOWED_MS if policies.shadow_topics else settings.confirmed_told_interval_ms,
        cursor_flush_interval_ms=interval_ms or settings.cursor_flush_interval_ms,
    )
    shared: ManagedLedgerSettings = _one_of_equals(changed)
    return shared


@lru_cache(maxsize=256)
def _one_of_equals(settings: Any) -> Any:
    """Topics with equal settings share them: each would have more than a kilobyte of its own."""
    return settings


def _in_units(value: int, unit: int) -> int:
    return value if value < 0 else value * unit
