# SPDX-License-Identifier: Apache-2.0
"""What the brokers of a cluster can be told about sharing bundles among them.

Decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """How bundles are placed, moved and split."""

    # Bundles of the namespaces that a new cluster starts with.
    namespace_bundles: int = 4
    # The leader says where a bundle goes; otherwise each broker decides by what it knows.
    centralized: bool = True
    # False: the leader has no bundles as long as there are other brokers, and serves administration and look-ups alone.
    leader_takes_bundles: bool = True
    # How long a look-up waits for the metadata store to grant a bundle.
    claim_timeout_ms: int = 10_000
    # How long a broker waits for a bundle that another one hands over to it.
    handover_timeout_ms: int = 30_000
    unload_timeout_ms: int = 60_000
    # Bundles that a stopping broker hands over at one time.
    handovers_at_once_max: int = 16

    # So long every member must have announced a format level before it is written; until then all may go back.
    format_level_delay_ms: int = 60 * 60_000

    enabled: bool = True
    report_interval_min_ms: int = 5_000
    report_interval_max_ms: int = 15 * 60_000
    report_threshold_percent: int = 10
    # Placement.
    placement: str = "LeastLongTermMessageRate"
    overloaded_percent: int = 85
    topics_per_broker_max: int = 50_000
    evenly: bool = True
    failure_domains: bool = False
    # Shedding.
    shedding_enabled: bool = True
    shedding_interval_ms: int = 60_000
    shedding_grace_ms: int = 30 * 60_000
    shedding: str = "ThresholdShedder"
    # Namespaces whose bundles stay where they are.
    shedding_excluded_namespaces: tuple[str, ...] = ()
    shedding_isolated: bool = False
    # Over all brokers; what is more waits for the next minute.
    moves_per_minute_max: int = 10
    threshold_percent: int = 10
    history_share: float = 0.9
    cpu_weight: float = 1.0
    memory_weight: float = 1.0
    direct_memory_weight: float = 1.0
    bandwidth_in_weight: float = 1.0
    bandwidth_out_weight: float = 1.0
    # Less than this is not worth a move, in bytes a second.
    move_bytes_min: float = 10.0 * 1024 * 1024
    # A broker far below the average gets a part of what the busiest has; upstream leaves that off.
    lower_boundary: bool = True
    uniform_rate_percent: int = 50
    uniform_throughput_factor: float = 4.0
    uniform_move_share_max: float = 0.2
    uniform_move_messages_min: int = 1_000
    uniform_move_bytes_min: int = 1024 * 1024
    average_low_percent: int = 15
    average_high_percent: int = 40
    average_low_hits: int = 8
    average_high_hits: int = 2
    # How loaded a broker is beside others: its highest weighted use of a resource, or a sum of processor, bytes and
    # messages with these weights, bytes and messages against the busiest broker.
    usage_formula: str = "highest"
    usage_sum_cpu_weight: float = 0.2
    usage_sum_bytes_weight: float = 0.3
    usage_sum_messages_weight: float = 0.5
    # How often the leader stores its long averages.
    averages_interval_ms: int = 15 * 60_000
    # Splitting.
    split_enabled: bool = True
    split_unloads: bool = True
    split_interval_ms: int = 60_000
    split_algorithm: str = "range_equally_divide"
    split_algorithms: tuple[str, ...] = (
        "range_equally_divide",
        "topic_count_equally_divide",
        "specified_positions_divide",
        "flow_or_qps_equally_divide",
    )
    bundle_topics_max: int = 1_000
    bundle_sessions_max: int = 1_000
    bundle_messages_per_s_max: int = 30_000
    bundle_bytes_per_s_max: int = 100 * 1024 * 1024
    bundles_per_namespace_max: int = 128
    # 0 asks the operating system.
    network_gbps: float = 0.0
