# SPDX-License-Identifier: Apache-2.0
"""What the HTTP server of a broker can be told. Address and port are the broker's own settings.

Decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """Bounds of requests and answers, and how often figures are taken."""

    request_bytes_max: int = 1024 * 1024
    # Request line and headers together.
    head_bytes_max: int = 64 * 1024
    # How long a client may take to send a request's head, and how long an idle connection is kept.
    head_timeout_ms: int = 10_000
    idle_timeout_ms: int = 30_000
    request_timeout_ms: int = 60_000
    requests_max: int = 256
    connections_max: int = 1_024
    # A rate for all requests together, where one is asked for.
    requests_limited: bool = False
    requests_per_s: float = 100.0
    # A partitioned topic of many partitions, or a namespace of many topics, is worked on in slices of this size.
    slice_items_max: int = 200
    # As statsUpdateFrequencyInSecs: rates are those of the last interval.
    rates_interval_s: int = 60
    # How often it is looked how old the oldest unacknowledged messages are.
    ages_interval_s: int = 10
    # Metrics of topics and subscriptions one by one; of namespaces when it is off or there are more topics than this.
    metrics_topic_level: bool = True
    metrics_topics_max: int = 10_000
    metrics_consumer_level: bool = False
    metrics_producer_level: bool = False
    metrics_partition_label: bool = False
    # A scrape is answered again with the same text for so long, unless it is larger than this.
    metrics_kept_ms: int = 1_000
    metrics_kept_bytes_max: int = 16 * 1024 * 1024
    # An OpenTelemetry collector that takes OTLP as JSON over HTTP, such as http://127.0.0.1:4318; empty: none.
    otlp_endpoint: str = ""
    otlp_interval_s: int = 60
    # What one peek, examine or analysis of a backlog may read.
    analysed_entries_max: int = 10_000
    namespace_bundles: int = 4
    # Whether `force` deletes a namespace with its topics, a tenant with its namespaces.
    forced_namespace_deletion: bool = False
    forced_tenant_deletion: bool = False
