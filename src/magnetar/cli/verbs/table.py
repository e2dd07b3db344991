# SPDX-License-Identifier: Apache-2.0
"""All nouns of `magnetar admin`. A noun's module is imported when the noun is typed.

Assembles.
"""

from importlib import import_module
from typing import Final

from magnetar.cli.values import WrongUse
from magnetar.cli.verbs.verb import Verb

# Noun: module, name in it, what it is about.
_NOUNS: Final = {
    "clusters": ("clusters", "CLUSTER_VERBS", "Clusters, their peers and failure domains."),
    "tenants": ("clusters", "TENANT_VERBS", "Tenants: who administers what."),
    "namespaces": ("namespaces", "NAMESPACE_VERBS", "Namespaces: policies, permissions, bundles."),
    "topics": ("topics", "TOPIC_VERBS", "Topics: statistics, subscriptions, messages."),
    "topicPolicies": ("topic_policies", "TOPIC_POLICY_VERBS", "Policies of single topics."),
    "schemas": ("brokers", "SCHEMA_VERBS", "Schemas of topics."),
    "brokers": ("brokers", "BROKER_VERBS", "Brokers: who is there, settings, health."),
    "broker-stats": ("brokers", "BROKER_STATS_VERBS", "Statistics of a broker."),
    "proxy-stats": ("brokers", "PROXY_STATS_VERBS", "Statistics of a proxy."),
    "bookies": ("brokers", "BOOKIE_VERBS", "Bookies and their racks."),
    "ns-isolation-policy": ("clusters", "ISOLATION_VERBS", "Which brokers serve which namespaces."),
    "resourcegroups": ("brokers", "RESOURCE_GROUP_VERBS", "Rates that namespaces share."),
    "resource-quotas": ("brokers", "RESOURCE_QUOTA_VERBS", "What bundles are expected to need."),
    "transactions": ("transactions", "TRANSACTION_VERBS", "Transactions and their coordinators."),
}
# Older names, which the help does not show.
_OLDER: Final = {"persistent": "topics", "non-persistent": "topics", "properties": "tenants"}
# Nouns of Apache Pulsar that need a server part which does not exist here.
NOT_SERVED: Final = ("functions", "functions-worker", "sources", "source", "sinks", "sink", "packages", "documents")


def nouns() -> dict[str, str]:
    """Every noun that the help shows, with what it is about."""
    return {noun: about for noun, (_, _, about) in _NOUNS.items()}


def verbs_of_noun(noun: str) -> dict[str, Verb]:
    """The verbs of a noun by their names. WrongUse when there is none of that name."""
    row = _NOUNS.get(_OLDER.get(noun, noun))
    if row is None:
        if noun in NOT_SERVED:
            raise WrongUse(f"{noun} of Apache Pulsar is not there: brokers of this version do not serve it")
        raise WrongUse(f"{noun!r} is no noun; there are {', '.join(_NOUNS)}")
    table: list[Verb] = getattr(import_module(f"magnetar.cli.verbs.{row[0]}"), row[1])
    found = {each.name: each for each in table}
    # What `skip-all` was called before it cleared a backlog.
    if noun == "persistent":
        clear = found["clear-backlog"]
        found["skip-all"] = clear._replace(command=clear.command._replace(name="skip-all"))
    if noun == "non-persistent":
        from magnetar.cli.verbs.older import list_in_bundle

        found["list-in-bundle"] = list_in_bundle()
    return found
