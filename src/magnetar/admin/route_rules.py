# SPDX-License-Identifier: Apache-2.0
"""What every route of administration needs: the exceptions are listed, the rest is for administrators.

A route about a topic or a namespace is for the tenant's administrators, any other for super users. A new route is
therefore closed until someone opens it here.
Decides.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from magnetar.broker.auth.grants import Need

_LOOKUP: Final = "/lookup/v2/topic/{domain:domain}/{tenant}/{namespace}/{topic}"
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_NAMESPACE_TOPICS: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}"
_TOPIC: Final = _NAMESPACE_TOPICS + "/{topic}"
_SUBSCRIPTION: Final = _TOPIC + "/subscription/{subscription}"
_PUBLISHED: Final = "/topics/{domain:domain}/{tenant}/{namespace}/{topic}"

METRICS: Final = ("/metrics", "/metrics/")


def _reads(need: Need, *paths: str) -> Iterable[tuple[tuple[str, str], Need]]:
    return ((("GET", path), need) for path in paths)


def _writes(need: Need, *paths: str) -> Iterable[tuple[tuple[str, str], Need]]:
    return (((method, path), need) for path in paths for method in ("POST", "PUT", "DELETE"))


ROUTE_RULES: Final[Mapping[tuple[str, str], Need]] = dict(
    (
        *_reads(Need.NOTHING, *METRICS, "/status.html", "/admin/v2/brokers/ready", "/admin/v2/brokers/version"),
        # Who asks for a WebSocket is asked who they are when they ask rightly.
        *_reads(Need.NOTHING, "/ws/{path:path}"),
        *_reads(Need.LOOK_UP, "/admin/v2/proxy-stats/{domain:domain}/{tenant}/{namespace}/{topic}/stats"),
        *_writes(Need.PRODUCE, _PUBLISHED, _PUBLISHED + "/partitions/{partition}"),
        *_reads(Need.ANY_ROLE, "/admin/v2/clusters", "/openapi.json", "/docs"),
        *_reads(Need.LOOK_UP, _LOOKUP, *(f"{_TOPIC}/{word}" for word in ("partitions", "properties", "stats"))),
        *_reads(
            Need.LOOK_UP,
            *(f"{_TOPIC}/{word}" for word in ("partitioned-stats", "internalStats", "partitioned-internalStats")),
        ),
        *_reads(
            Need.LIST,
            _NAMESPACE + "/topics",
            _NAMESPACE + "/bundles",
            _NAMESPACE_TOPICS,
            _NAMESPACE_TOPICS + "/partitioned",
        ),
        *_reads(
            Need.CONSUME,
            _TOPIC + "/subscriptions",
            _TOPIC + "/examinemessage",
            _TOPIC + "/ledger/{ledger_id}/entry/{entry_id}",
            _TOPIC + "/messageid/{moment}",
            _TOPIC + "/getMessageIdByIndex",
            _TOPIC + "/lastMessageId",
            _SUBSCRIPTION + "/explain",
            _SUBSCRIPTION + "/properties",
            _SUBSCRIPTION + "/replicatedSubscriptionStatus",
            _SUBSCRIPTION + "/position/{number}",
        ),
        *_writes(
            Need.CONSUME,
            _TOPIC + "/backlogSize",
            _SUBSCRIPTION,
            _SUBSCRIPTION + "/skip_all",
            _SUBSCRIPTION + "/skip/{count}",
            _SUBSCRIPTION + "/expireMessages/{seconds}",
            _SUBSCRIPTION + "/expireMessages",
            _SUBSCRIPTION + "/resetcursor/{moment}",
            _SUBSCRIPTION + "/resetcursor",
            _SUBSCRIPTION + "/analyzeBacklog",
            _SUBSCRIPTION + "/properties",
            _SUBSCRIPTION + "/replicatedSubscriptionStatus",
            _TOPIC + "/all_subscription/expireMessages/{seconds}",
        ),
        *_writes(
            Need.CONSUME_ALL,
            *(
                f"{_NAMESPACE}/{path}"
                for path in (
                    "clearBacklog",
                    "clearBacklog/{subscription}",
                    "{bundle}/clearBacklog",
                    "{bundle}/clearBacklog/{subscription}",
                    "unsubscribe/{subscription}",
                    "{bundle}/unsubscribe/{subscription}",
                )
            ),
        ),
        *_writes(
            Need.SUPER_USER,
            _NAMESPACE + "/persistence/bookieAffinity",
            _NAMESPACE + "/resourcegroup",
            _NAMESPACE + "/resourcegroup/{group}",
        ),
    )
)

# What a tenant may use of the cluster is not for the tenant to say.
SUPER_USER_POLICIES: Final = frozenset(
    {"publishRate", "dispatchRate", "subscriptionDispatchRate", "subscribeRate", "replicatorDispatchRate"}
)


def need_of(method: str, path: str, policy: str = "") -> Need:
    """What a request needs, by its route's path and, where a route serves many policies, the policy's name."""
    method = "GET" if method == "HEAD" else method
    listed = ROUTE_RULES.get((method, path))
    if listed is not None:
        return listed
    if path.startswith(("/admin/v2/tenants", "/admin/v2/resource-quotas", "/admin/v2/broker-stats")):
        return Need.SUPER_USER
    if path == _NAMESPACE + "/{policy}" and method != "GET" and policy in SUPER_USER_POLICIES:
        return Need.SUPER_USER
    return Need.TENANT_ADMIN if "{tenant}" in path else Need.SUPER_USER
