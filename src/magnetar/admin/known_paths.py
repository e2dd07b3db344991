# SPDX-License-Identifier: Apache-2.0
"""Every method and path of Apache Pulsar 4.x's HTTP interface, and the feature that each belongs to.

Facts, to answer a known path that is not served with the name of what is missing instead of a bare 404, and to write
docs/admin-api.md. Never says what is served: the routes do.
Decides.
"""

import re
from functools import cache
from typing import Final

_TABLE: Final = """
/admin/v2/bookies/all GET
/admin/v2/bookies/racks-info GET
/admin/v2/bookies/racks-info/{bookie} DELETE GET POST
/admin/v2/broker-stats/allocator-stats/{allocator} GET
/admin/v2/broker-stats/bookieops GET
/admin/v2/broker-stats/broker-resource-availability/{tenant}/{namespace} GET
/admin/v2/broker-stats/destinations GET
/admin/v2/broker-stats/load-report GET
/admin/v2/broker-stats/mbeans GET
/admin/v2/broker-stats/metrics GET
/admin/v2/broker-stats/topics GET
/admin/v2/brokers GET
/admin/v2/brokers/backlog-quota-check GET
/admin/v2/brokers/configuration GET
/admin/v2/brokers/configuration/runtime GET
/admin/v2/brokers/configuration/values GET
/admin/v2/brokers/configuration/{configName} DELETE
/admin/v2/brokers/configuration/{configName}/{configValue} POST
/admin/v2/brokers/health GET
/admin/v2/brokers/internal-configuration GET
/admin/v2/brokers/leaderBroker GET
/admin/v2/brokers/ready GET
/admin/v2/brokers/shutdown POST
/admin/v2/brokers/version GET
/admin/v2/brokers/{clusterName}/{brokerId}/ownedNamespaces GET
/admin/v2/brokers/{cluster} GET
/admin/v2/clusters GET
/admin/v2/clusters/{cluster} DELETE GET POST PUT
/admin/v2/clusters/{cluster}/failureDomains GET
/admin/v2/clusters/{cluster}/failureDomains/{domainName} DELETE GET POST
/admin/v2/clusters/{cluster}/migrate GET POST
/admin/v2/clusters/{cluster}/namespaceIsolationPolicies GET
/admin/v2/clusters/{cluster}/namespaceIsolationPolicies/brokers GET
/admin/v2/clusters/{cluster}/namespaceIsolationPolicies/brokers/{broker} GET
/admin/v2/clusters/{cluster}/namespaceIsolationPolicies/{policyName} DELETE GET POST
/admin/v2/clusters/{cluster}/peers GET POST
/admin/v2/functions/connectors GET
/admin/v2/functions/download GET
/admin/v2/functions/upload POST
/admin/v2/functions/{tenant}/{namespace} GET
/admin/v2/functions/{tenant}/{namespace}/{functionName} DELETE GET POST PUT
/admin/v2/functions/{tenant}/{namespace}/{functionName}/restart POST
/admin/v2/functions/{tenant}/{namespace}/{functionName}/state/{key} GET
/admin/v2/functions/{tenant}/{namespace}/{functionName}/status GET
/admin/v2/functions/{tenant}/{namespace}/{functionName}/stop POST
/admin/v2/functions/{tenant}/{namespace}/{functionName}/trigger POST
/admin/v2/functions/{tenant}/{namespace}/{functionName}/{instanceId}/restart POST
/admin/v2/functions/{tenant}/{namespace}/{functionName}/{instanceId}/status GET
/admin/v2/functions/{tenant}/{namespace}/{functionName}/{instanceId}/stop POST
/admin/v2/namespaces/grantPermissionsOnTopics POST
/admin/v2/namespaces/revokePermissionsOnTopics POST
/admin/v2/namespaces/{cluster}/antiAffinity/{group} GET
/admin/v2/namespaces/{tenant} GET
/admin/v2/namespaces/{tenant}/{namespace} DELETE GET PUT
/admin/v2/namespaces/{tenant}/{namespace}/allowedClusters GET POST
/admin/v2/namespaces/{tenant}/{namespace}/antiAffinity DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/autoSubscriptionCreation DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/autoTopicCreation DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/backlogQuota DELETE POST
/admin/v2/namespaces/{tenant}/{namespace}/backlogQuotaMap GET
/admin/v2/namespaces/{tenant}/{namespace}/bundles GET
/admin/v2/namespaces/{tenant}/{namespace}/clearBacklog POST
/admin/v2/namespaces/{tenant}/{namespace}/clearBacklog/{subscription} POST
/admin/v2/namespaces/{tenant}/{namespace}/compactionThreshold DELETE GET PUT
/admin/v2/namespaces/{tenant}/{namespace}/deduplication DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/deduplicationSnapshotInterval GET POST
/admin/v2/namespaces/{tenant}/{namespace}/delayedDelivery DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/dispatchRate DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/dispatcherPauseOnAckStatePersistent DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/encryptionRequired GET POST
/admin/v2/namespaces/{tenant}/{namespace}/entryFilters DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/inactiveTopicPolicies DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/isAllowAutoUpdateSchema GET POST
/admin/v2/namespaces/{tenant}/{namespace}/maxConsumersPerSubscription DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/maxConsumersPerTopic DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/maxProducersPerTopic DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/maxSubscriptionsPerTopic DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/maxTopicsPerNamespace DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/maxUnackedMessagesPerConsumer DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/maxUnackedMessagesPerSubscription DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/messageTTL DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/migration POST
/admin/v2/namespaces/{tenant}/{namespace}/offloadDeletionLagMs DELETE GET PUT
/admin/v2/namespaces/{tenant}/{namespace}/offloadPolicies GET POST
/admin/v2/namespaces/{tenant}/{namespace}/offloadThreshold GET PUT
/admin/v2/namespaces/{tenant}/{namespace}/offloadThresholdInSeconds GET PUT
/admin/v2/namespaces/{tenant}/{namespace}/permissions GET
/admin/v2/namespaces/{tenant}/{namespace}/permissions/subscription GET
/admin/v2/namespaces/{tenant}/{namespace}/permissions/subscription/{subscription} POST
/admin/v2/namespaces/{tenant}/{namespace}/permissions/{role} DELETE POST
/admin/v2/namespaces/{tenant}/{namespace}/permissions/{subscription}/{role} DELETE
/admin/v2/namespaces/{tenant}/{namespace}/persistence DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/persistence/bookieAffinity DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/properties DELETE GET PUT
/admin/v2/namespaces/{tenant}/{namespace}/property/{key} DELETE GET
/admin/v2/namespaces/{tenant}/{namespace}/property/{key}/{value} PUT
/admin/v2/namespaces/{tenant}/{namespace}/publishRate DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/removeOffloadPolicies DELETE
/admin/v2/namespaces/{tenant}/{namespace}/replication GET POST
/admin/v2/namespaces/{tenant}/{namespace}/replicatorDispatchRate DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup DELETE GET
/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup/{resourcegroup} POST
/admin/v2/namespaces/{tenant}/{namespace}/retention DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/scanOffloadedLedgers GET
/admin/v2/namespaces/{tenant}/{namespace}/schemaAutoUpdateCompatibilityStrategy GET PUT
/admin/v2/namespaces/{tenant}/{namespace}/schemaCompatibilityStrategy GET PUT
/admin/v2/namespaces/{tenant}/{namespace}/schemaValidationEnforced GET POST
/admin/v2/namespaces/{tenant}/{namespace}/subscribeRate DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/subscriptionAuthMode GET POST
/admin/v2/namespaces/{tenant}/{namespace}/subscriptionDispatchRate DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/subscriptionExpirationTime DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/subscriptionTypesEnabled DELETE GET POST
/admin/v2/namespaces/{tenant}/{namespace}/topics GET
/admin/v2/namespaces/{tenant}/{namespace}/unload PUT
/admin/v2/namespaces/{tenant}/{namespace}/unsubscribe/{subscription} POST
/admin/v2/namespaces/{tenant}/{namespace}/{bundle} DELETE
/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/clearBacklog POST
/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/clearBacklog/{subscription} POST
/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/split PUT
/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/topicHashPositions GET
/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/unload PUT
/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/unsubscribe/{subscription} POST
/admin/v2/non-persistent/{tenant}/{namespace} GET
/admin/v2/non-persistent/{tenant}/{namespace}/{bundle} GET
/admin/v2/non-persistent/{tenant}/{namespace}/{topic}/entryFilters DELETE GET POST
/admin/v2/non-persistent/{tenant}/{namespace}/{topic}/internalStats GET
/admin/v2/non-persistent/{tenant}/{namespace}/{topic}/partitioned-stats GET
/admin/v2/non-persistent/{tenant}/{namespace}/{topic}/partitions GET PUT
/admin/v2/non-persistent/{tenant}/{namespace}/{topic}/truncate DELETE
/admin/v2/non-persistent/{tenant}/{namespace}/{topic}/unload PUT
/admin/v2/persistent/{tenant}/{namespace} GET
/admin/v2/persistent/{tenant}/{namespace}/partitioned GET
/admin/v2/persistent/{tenant}/{namespace}/{topic} DELETE PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/all_subscription/expireMessages/{expireTimeInSeconds} POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/autoSubscriptionCreation DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/backlog GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/backlogQuota DELETE POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/backlogQuotaMap GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/backlogSize PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/compaction GET PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/compactionThreshold DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/createMissedPartitions POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/deduplicationEnabled DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/deduplicationSnapshotInterval DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/delayedDelivery DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/dispatchRate DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/dispatcherPauseOnAckStatePersistent DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/entryFilters DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/examinemessage GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/inactiveTopicPolicies DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/internal-info GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/internalStats GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/lastMessageId GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/ledger/{ledgerId}/entry/{entryId} GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/maxConsumers DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/maxConsumersPerSubscription DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/maxMessageSize DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/maxProducers DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/maxSubscriptionsPerTopic DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/maxUnackedMessagesOnConsumer DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/maxUnackedMessagesOnSubscription DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/messageTTL DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/messageid/{timestamp} GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/offload GET PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/offloadPolicies DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/partitioned-internalStats GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/partitioned-stats GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/partitions DELETE GET POST PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/permissions GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/permissions/{role} DELETE POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/persistence DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/policies DELETE
/admin/v2/persistent/{tenant}/{namespace}/{topic}/properties DELETE GET PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/publishRate DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/replication DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/replicatorDispatchRate DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/retention DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/schemaCompatibilityStrategy DELETE GET PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/schemaValidationEnforced GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/shadowTopics DELETE GET PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/stats GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscribeRate DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName} DELETE
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName}/analyzeBacklog POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName}/expireMessages POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName}/expireMessages/{expireTimeInSeconds} POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName}/position/{messagePosition} GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName}/properties GET PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName}/replicatedSubscriptionStatus GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName}/resetcursor POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName}/resetcursor/{timestamp} POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName}/skip/{numMessages} POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subName}/skip_all POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscriptionName} PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscriptionDispatchRate DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscriptionTypesEnabled DELETE GET POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscriptions GET
/admin/v2/persistent/{tenant}/{namespace}/{topic}/terminate POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/terminate/partitions POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/trim POST
/admin/v2/persistent/{tenant}/{namespace}/{topic}/truncate DELETE
/admin/v2/persistent/{tenant}/{namespace}/{topic}/unload PUT
/admin/v2/persistent/{tenant}/{namespace}/{topic}/{subName}/dispatchRate DELETE GET POST
/admin/v2/proxy-stats/metrics GET
/admin/v2/proxy-stats/stats GET
/admin/v2/proxy-stats/{domain}/{tenant}/{namespace}/{topic}/stats GET
/admin/v2/resource-quotas GET POST
/admin/v2/resource-quotas/{tenant}/{namespace}/{bundle} DELETE GET POST
/admin/v2/resourcegroups GET
/admin/v2/resourcegroups/{resourcegroup} DELETE GET PUT
/admin/v2/schemas/{tenant}/{namespace}/{topic}/compatibility POST
/admin/v2/schemas/{tenant}/{namespace}/{topic}/metadata GET
/admin/v2/schemas/{tenant}/{namespace}/{topic}/schema DELETE GET POST
/admin/v2/schemas/{tenant}/{namespace}/{topic}/schema/{version} GET
/admin/v2/schemas/{tenant}/{namespace}/{topic}/schemas GET
/admin/v2/schemas/{tenant}/{namespace}/{topic}/version POST
/admin/v2/tenants GET
/admin/v2/tenants/{tenant} DELETE GET POST PUT
/admin/v2/worker-stats/functionsmetrics GET
/admin/v2/worker-stats/metrics GET
/admin/v2/worker/assignments GET
/admin/v2/worker/cluster GET
/admin/v2/worker/cluster/leader GET
/admin/v2/worker/cluster/leader/ready GET
/admin/v2/worker/connectors GET
/admin/v2/worker/drain GET PUT
/admin/v2/worker/leader/drain GET PUT
/admin/v2/worker/rebalance PUT
/admin/v3/functions/builtins GET
/admin/v3/functions/builtins/reload POST
/admin/v3/functions/connectors GET
/admin/v3/functions/download GET
/admin/v3/functions/leader/{tenant}/{namespace}/{functionName} PUT
/admin/v3/functions/upload POST
/admin/v3/functions/{tenant}/{namespace} GET
/admin/v3/functions/{tenant}/{namespace}/{functionName} DELETE GET POST PUT
/admin/v3/functions/{tenant}/{namespace}/{functionName}/download GET
/admin/v3/functions/{tenant}/{namespace}/{functionName}/restart POST
/admin/v3/functions/{tenant}/{namespace}/{functionName}/start POST
/admin/v3/functions/{tenant}/{namespace}/{functionName}/state/{key} GET POST
/admin/v3/functions/{tenant}/{namespace}/{functionName}/stats GET
/admin/v3/functions/{tenant}/{namespace}/{functionName}/status GET
/admin/v3/functions/{tenant}/{namespace}/{functionName}/stop POST
/admin/v3/functions/{tenant}/{namespace}/{functionName}/trigger POST
/admin/v3/functions/{tenant}/{namespace}/{functionName}/{instanceId}/restart POST
/admin/v3/functions/{tenant}/{namespace}/{functionName}/{instanceId}/start POST
/admin/v3/functions/{tenant}/{namespace}/{functionName}/{instanceId}/stats GET
/admin/v3/functions/{tenant}/{namespace}/{functionName}/{instanceId}/status GET
/admin/v3/functions/{tenant}/{namespace}/{functionName}/{instanceId}/stop POST
/admin/v3/packages/{type}/{tenant}/{namespace} GET
/admin/v3/packages/{type}/{tenant}/{namespace}/{packageName} GET
/admin/v3/packages/{type}/{tenant}/{namespace}/{packageName}/{version} DELETE GET POST
/admin/v3/packages/{type}/{tenant}/{namespace}/{packageName}/{version}/metadata GET PUT
/admin/v3/sinks/builtinsinks GET
/admin/v3/sinks/builtinsinks/{name}/configdefinition GET
/admin/v3/sinks/reloadBuiltInSinks POST
/admin/v3/sinks/{tenant}/{namespace} GET
/admin/v3/sinks/{tenant}/{namespace}/{sinkName} DELETE GET POST PUT
/admin/v3/sinks/{tenant}/{namespace}/{sinkName}/restart POST
/admin/v3/sinks/{tenant}/{namespace}/{sinkName}/start POST
/admin/v3/sinks/{tenant}/{namespace}/{sinkName}/status GET
/admin/v3/sinks/{tenant}/{namespace}/{sinkName}/stop POST
/admin/v3/sinks/{tenant}/{namespace}/{sinkName}/{instanceId}/restart POST
/admin/v3/sinks/{tenant}/{namespace}/{sinkName}/{instanceId}/start POST
/admin/v3/sinks/{tenant}/{namespace}/{sinkName}/{instanceId}/status GET
/admin/v3/sinks/{tenant}/{namespace}/{sinkName}/{instanceId}/stop POST
/admin/v3/sources/builtinsources GET
/admin/v3/sources/builtinsources/{name}/configdefinition GET
/admin/v3/sources/reloadBuiltInSources POST
/admin/v3/sources/{tenant}/{namespace} GET
/admin/v3/sources/{tenant}/{namespace}/{sourceName} DELETE GET POST PUT
/admin/v3/sources/{tenant}/{namespace}/{sourceName}/restart POST
/admin/v3/sources/{tenant}/{namespace}/{sourceName}/start POST
/admin/v3/sources/{tenant}/{namespace}/{sourceName}/status GET
/admin/v3/sources/{tenant}/{namespace}/{sourceName}/stop POST
/admin/v3/sources/{tenant}/{namespace}/{sourceName}/{instanceId}/restart POST
/admin/v3/sources/{tenant}/{namespace}/{sourceName}/{instanceId}/start POST
/admin/v3/sources/{tenant}/{namespace}/{sourceName}/{instanceId}/status GET
/admin/v3/sources/{tenant}/{namespace}/{sourceName}/{instanceId}/stop POST
/admin/v3/transactions/abortTransaction/{mostSigBits}/{leastSigBits} POST
/admin/v3/transactions/coordinatorInternalStats/{coordinatorId} GET
/admin/v3/transactions/coordinatorStats GET
/admin/v3/transactions/coordinators GET
/admin/v3/transactions/pendingAckInternalStats/{tenant}/{namespace}/{topic}/{subName} GET
/admin/v3/transactions/pendingAckStats/{tenant}/{namespace}/{topic}/{subName} GET
/admin/v3/transactions/positionStatsInPendingAck/{tenant}/{namespace}/{topic}/{subName}/{ledgerId}/{entryId} GET
/admin/v3/transactions/slowTransactions/{timeout} GET
/admin/v3/transactions/transactionBufferInternalStats/{tenant}/{namespace}/{topic} GET
/admin/v3/transactions/transactionBufferStats/{tenant}/{namespace}/{topic} GET
/admin/v3/transactions/transactionCoordinator/replicas POST
/admin/v3/transactions/transactionInBufferStats/{tenant}/{namespace}/{topic}/{mostSigBits}/{leastSigBits} GET
/admin/v3/transactions/transactionInPendingAckStats/{tenant}/{namespace}/{topic}/{subName}/{most}/{least} GET
/admin/v3/transactions/transactionMetadata/{mostSigBits}/{leastSigBits} GET
/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic} GET
/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle GET
/topics/non-persistent/{tenant}/{namespace}/{topic} POST
/topics/non-persistent/{tenant}/{namespace}/{topic}/partitions/{partition} POST
/topics/persistent/{tenant}/{namespace}/{topic} POST
/topics/persistent/{tenant}/{namespace}/{topic}/partitions/{partition} POST
"""

# The first that a path starts with names its feature.
_FEATURES: Final = (
    ("/admin/v2/schemas", "schema metadata over HTTP"),
    ("/admin/v2/worker", "the function worker"),
    ("/admin/v2/functions", "functions"),
    ("/admin/v3/functions", "functions"),
    ("/admin/v3/sinks", "sinks"),
    ("/admin/v3/sources", "sources"),
    ("/admin/v3/packages", "packages"),
    ("/admin/v3/transactions", "transactions over HTTP"),
    ("/admin/v2/resource-quotas", "resource quotas of bundles"),
    ("/admin/v2/broker-stats", "statistics of a Java virtual machine"),
    ("/topics", "publishing over HTTP"),
)
_LAST_PARTS: Final = (
    ("offload", "offloading"),
    ("scanOffloadedLedgers", "offloading"),
    ("replicatedSubscriptionStatus", "replicated subscriptions"),
    ("migrate", "migration between clusters"),
    ("migration", "migration between clusters"),
    ("internal-info", "the raw record of a managed ledger"),
    ("shutdown", "stopping a broker over HTTP"),
)


@cache
def known_paths() -> tuple[tuple[str, str], ...]:
    """Every (method, path), sorted by path."""
    rows = [line.split(" ") for line in _TABLE.split("\n") if line]
    return tuple((verb, path) for path, *verbs in rows for verb in verbs)


def unserved_feature(method: str, path: str) -> str | None:
    """The feature that a known path belongs to; None for a path that Pulsar does not have either."""
    for verb, known, pattern in _patterns():
        if verb == method and pattern.fullmatch(path):
            return feature_of(known)
    return None


def feature_of(known: str) -> str:
    for start, feature in _FEATURES:
        if known.startswith(start):
            return feature
    last = known.rpartition("/")[2]
    return dict(_LAST_PARTS).get(last, f"the path {known}")


@cache
def _patterns() -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    # A path that names its last part wins over one that takes any there.
    ordered = sorted(known_paths(), key=lambda row: row[1].count("{"))
    return tuple((verb, path, re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path))) for verb, path in ordered)
