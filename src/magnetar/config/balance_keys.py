# SPDX-License-Identifier: Apache-2.0
"""Pulsar's keys about sharing bundles among the brokers of a cluster.

Decides.
"""

from typing import Final

from magnetar.config.key import COUNT, MIB, MINUTES, POSITIVE_MILLISECONDS, Key, rows
from magnetar.config.values import Decimal, Flag, OneOf, Text, TextList, Whole

_IMPL: Final = "org.apache.pulsar.broker.loadbalance.impl."
_PERCENT: Final = Whole(0, 100)
_WEIGHT: Final = Decimal(0.0, 100.0)
SHEDDERS: Final = ("OverloadShedder", "ThresholdShedder", "UniformLoadShedder", "AvgShedder", "TransferShedder")
PLACERS: Final = (
    "LeastLongTermMessageRate",
    "LeastResourceUsageWithWeight",
    "RoundRobinBrokerSelector",
    "AvgShedder",
)


def _classes(names: tuple[str, ...]) -> OneOf:
    """Strategies by Pulsar's class names, whole or the last part."""
    return OneOf(tuple((prefix + name, name) for name in names for prefix in ("", _IMPL)))


BALANCE_KEYS: Final[tuple[Key, ...]] = (
    *rows(
        "admin",
        ("defaultNumberOfNamespaceBundles", "namespace_bundles", Whole(1, 4096), "Bundles of a new namespace."),
    ),
    *rows(
        "broker",
        (
            "advertisedListeners",
            "advertised_listeners",
            Text(4096),
            "Addresses for clients that ask for a listener by name, as name:pulsar://host:port with commas between.",
        ),
        (
            "bindAddresses",
            "bind_addresses",
            Text(4096),
            "Further addresses to listen at, as listener:pulsar://host:port; who comes in there is that listener's.",
        ),
    ),
    *rows(
        "balance",
        ("defaultNumberOfNamespaceBundles", "namespace_bundles", Whole(1, 4096), "Bundles of a new namespace."),
        ("namespaceBundleUnloadingTimeoutMs", "unload_timeout_ms", POSITIVE_MILLISECONDS, "Time to close a bundle."),
        ("loadBalancerEnabled", "enabled", Flag(), "Load is reported and the leader balances it."),
        (
            "loadBalancerReportUpdateMinIntervalMillis",
            "report_interval_min_ms",
            Whole(100, 2**31 - 1),
            "How often a broker looks at its load.",
        ),
        (
            "loadBalancerReportUpdateMaxIntervalMinutes",
            "report_interval_max_ms",
            MINUTES,
            "A load that does not change is reported after this all the same.",
        ),
        (
            "loadBalancerReportUpdateThresholdPercentage",
            "report_threshold_percent",
            _PERCENT,
            "A load that has changed by this is reported at once.",
        ),
        ("loadBalancerLoadPlacementStrategy", "placement", _classes(PLACERS), "Where a bundle goes."),
        (
            "loadBalancerBrokerOverloadedThresholdPercentage",
            "overloaded_percent",
            _PERCENT,
            "A broker that uses more than this of a resource is overloaded.",
        ),
        ("loadBalancerBrokerMaxTopics", "topics_per_broker_max", COUNT, "A broker with so many topics gets no more."),
        ("loadBalancerDistributeBundlesEvenlyEnabled", "evenly", Flag(), "Bundles of a namespace are spread."),
        ("failureDomainsEnabled", "failure_domains", Flag(), "Anti-affinity groups are spread over domains."),
        ("loadBalancerSheddingEnabled", "shedding_enabled", Flag(), "Loaded brokers give bundles up by themselves."),
        ("loadBalancerSheddingIntervalMinutes", "shedding_interval_ms", MINUTES, "How often the leader looks."),
        (
            "loadBalancerSheddingGracePeriodMinutes",
            "shedding_grace_ms",
            MINUTES,
            "A bundle that was moved is left alone for this long.",
        ),
        (
            "balance.usage_formula",
            "usage_formula",
            OneOf((("highest", "highest"), ("summed", "summed"))),
            "How loaded a broker is: its highest weighted use of a resource, or a weighted sum.",
        ),
        ("loadBalancerLoadSheddingStrategy", "shedding", _classes(SHEDDERS), "Which bundles leave which brokers."),
        (
            "loadBalancerSheddingBundlesWithPoliciesEnabled",
            "shedding_isolated",
            Flag(),
            "Bundles of isolated namespaces are moved as well.",
        ),
        (
            "loadBalancerBrokerThresholdShedderPercentage",
            "threshold_percent",
            _PERCENT,
            "How far above the average a broker may be.",
        ),
        ("loadBalancerHistoryResourcePercentage", "history_share", Decimal(0.0, 1.0), "Weight of earlier looks."),
        ("loadBalancerCPUResourceWeight", "cpu_weight", _WEIGHT, "Weight of the processor; 0 leaves it out."),
        ("loadBalancerMemoryResourceWeight", "memory_weight", _WEIGHT, "Weight of memory."),
        ("loadBalancerDirectMemoryResourceWeight", "direct_memory_weight", _WEIGHT, "Weight of buffers."),
        ("loadBalancerBandwidthInResourceWeight", "bandwidth_in_weight", _WEIGHT, "Weight of what comes in."),
        ("loadBalancerBandwidthOutResourceWeight", "bandwidth_out_weight", _WEIGHT, "Weight of what goes out."),
        (
            "loadBalancerBundleUnloadMinThroughputThreshold",
            "move_bytes_min",
            Decimal(0.0, 1e6, factor=MIB),
            "A move of less traffic is not worth it, in MB a second.",
        ),
        ("lowerBoundarySheddingEnabled", "lower_boundary", Flag(), "A broker that is far below the average gets work."),
        (
            "loadBalancerMsgRateDifferenceShedderThreshold",
            "uniform_rate_percent",
            Whole(0, 10_000),
            "UniformLoadShedder: how far the rates of two brokers may differ.",
        ),
        (
            "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
            "uniform_throughput_factor",
            Decimal(0.0, 1000.0),
            "UniformLoadShedder: how many times the throughput of another a broker may have.",
        ),
        (
            "maxUnloadPercentage",
            "uniform_move_share_max",
            Decimal(0.0, 1.0),
            "UniformLoadShedder: share of a move.",
        ),
        ("minUnloadMessage", "uniform_move_messages_min", COUNT, "UniformLoadShedder: messages a second worth a move."),
        ("minUnloadMessageThroughput", "uniform_move_bytes_min", COUNT, "UniformLoadShedder: bytes worth a move."),
        ("loadBalancerAvgShedderLowThreshold", "average_low_percent", _PERCENT, "AvgShedder: a difference to watch."),
        ("loadBalancerAvgShedderHighThreshold", "average_high_percent", _PERCENT, "AvgShedder: one to end soon."),
        ("loadBalancerAvgShedderHitCountLowThreshold", "average_low_hits", COUNT, "AvgShedder: looks before a move."),
        ("loadBalancerAvgShedderHitCountHighThreshold", "average_high_hits", COUNT, "AvgShedder: looks, when high."),
        (
            "loadBalancerResourceQuotaUpdateIntervalMinutes",
            "averages_interval_ms",
            MINUTES,
            "How often the leader stores its averages.",
        ),
        ("loadBalancerAutoBundleSplitEnabled", "split_enabled", Flag(), "Bundles that grow too large are split."),
        ("loadBalancerAutoUnloadSplitBundlesEnabled", "split_unloads", Flag(), "The parts of a split may move."),
        ("loadBalancerSplitIntervalMinutes", "split_interval_ms", MINUTES, "How often the leader looks for them."),
        ("defaultNamespaceBundleSplitAlgorithm", "split_algorithm", Text(100), "How a bundle is cut."),
        ("supportedNamespaceBundleSplitAlgorithms", "split_algorithms", TextList(20), "What may be asked for."),
        ("loadBalancerNamespaceBundleMaxTopics", "bundle_topics_max", COUNT, "Topics of one bundle."),
        ("loadBalancerNamespaceBundleMaxSessions", "bundle_sessions_max", COUNT, "Producers and consumers of one."),
        ("loadBalancerNamespaceBundleMaxMsgRate", "bundle_messages_per_s_max", COUNT, "Messages a second of one."),
        (
            "loadBalancerNamespaceBundleMaxBandwidthMbytes",
            "bundle_bytes_per_s_max",
            Whole(1, 2**20, factor=MIB),
            "Traffic of one bundle in MB a second.",
        ),
        (
            "loadBalancerNamespaceMaximumBundles",
            "bundles_per_namespace_max",
            Whole(1, 4096),
            "Bundles beyond which none is split by itself.",
        ),
        (
            "loadBalancerOverrideBrokerNicSpeedGbps",
            "network_gbps",
            Decimal(0.0, 10_000.0),
            "Speed of the network, where the system does not say it.",
        ),
    ),
)
