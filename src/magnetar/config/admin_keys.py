# SPDX-License-Identifier: Apache-2.0
"""Pulsar's keys about administration, statistics and metrics.

Decides.
"""

from typing import Final

from magnetar.config.key import Key, rows
from magnetar.config.values import Decimal, Flag, Whole

ADMIN_KEYS: Final[tuple[Key, ...]] = rows(
    "admin",
    ("httpRequestsLimitEnabled", "requests_limited", Flag(), "HTTP requests are limited to a rate."),
    ("httpRequestsMaxPerSecond", "requests_per_s", Decimal(0.01, 1e9), "That rate, for all clients together."),
    ("statsUpdateFrequencyInSecs", "rates_interval_s", Whole(1, 3600), "Rates are those of the last so many seconds."),
    ("forceDeleteNamespaceAllowed", "forced_namespace_deletion", Flag(), "Force deletes a namespace with its topics."),
    ("forceDeleteTenantAllowed", "forced_tenant_deletion", Flag(), "Force deletes a tenant with its namespaces."),
    (
        "exposeTopicLevelMetricsInPrometheus",
        "metrics_topic_level",
        Flag(),
        "Metrics of topics one by one; else, and with more topics than admin.metrics_topics_max, of namespaces.",
    ),
    ("exposeConsumerLevelMetricsInPrometheus", "metrics_consumer_level", Flag(), "Metrics of consumers one by one."),
    ("exposeProducerLevelMetricsInPrometheus", "metrics_producer_level", Flag(), "Metrics of producers one by one."),
    (
        "splitTopicAndPartitionLabelInPrometheus",
        "metrics_partition_label",
        Flag(),
        "A partition is a label beside the topic's name.",
    ),
)
