# SPDX-License-Identifier: Apache-2.0
"""Settings of topics: the broker's with the policies over them, and one object for all topics that have the same."""

from dataclasses import replace

from magnetar.broker.policies.effective import broker_policies
from magnetar.broker.policies.topic_settings import storage_settings, topic_settings
from magnetar.config.broker import BrokerSettings
from magnetar.config.managed_ledger import ManagedLedgerSettings

BROKER, STORAGE = BrokerSettings(), ManagedLedgerSettings()
POLICIES = broker_policies(BROKER, STORAGE)


def test_topics_with_equal_policies_share_their_settings() -> None:
    assert topic_settings(BROKER, POLICIES) is topic_settings(BROKER, replace(POLICIES))
    assert storage_settings(STORAGE, POLICIES) is storage_settings(STORAGE, replace(POLICIES))


def test_a_policy_gives_a_topic_settings_of_its_own() -> None:
    changed = replace(POLICIES, producers_max=7, persistence=POLICIES.persistence._replace(ensemble=3))
    assert topic_settings(BROKER, changed).producers_per_topic_max == 7
    assert topic_settings(BROKER, POLICIES).producers_per_topic_max == BROKER.producers_per_topic_max
    assert storage_settings(STORAGE, changed).ensemble_size == 3
