# SPDX-License-Identifier: Apache-2.0
"""`namespaces`: what holds for all topics of a namespace, who may use it, where its bundles are.

Decides.
"""

from typing import Any, Final

from magnetar.cli.values import WrongUse, pairs_of
from magnetar.cli.verbs.namespace_policies import NAMESPACE_POLICY_VERBS
from magnetar.cli.verbs.verb import (
    BUNDLE,
    FORCE,
    NAMESPACE,
    SYSTEM_TOPICS,
    AdminRequest,
    Api,
    Verb,
    members,
    request,
    scripted,
    value,
    verb,
)
from magnetar.cli.words import Given, Kind, flag

_ROLE: Final = flag("--role", Kind.TEXT, "Who: the role that a client proves.", required=True)
_SUB: Final = flag("--subscription -s", Kind.TEXT, "The subscription.", required=True)
_KEY: Final = flag("--key -k", Kind.TEXT, "Name of the property.", required=True)


def _create_body(given: Given) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if given["clusters"]:
        body["replication_clusters"] = given["clusters"]
    if given["bundles"]:
        body["bundles"] = {"numBundles": given["bundles"]}
    return body


def _unload(api: Api, given: Given) -> Any:
    path = NAMESPACE + ("/unload" if given["bundle"] is None else "/{bundle}/unload")
    return api.ask(request("PUT", path, given, query=(("destinationBroker", "destinationBroker"),))).value


def _split(api: Api, given: Given) -> Any:
    if (given["bundle"] is None) == (given["bundle_type"] is None):
        raise WrongUse("split-bundle needs either --bundle or --bundle-type")
    query = (("unload", "unload"), ("splitAlgorithmName", "split_algorithm_name"))
    named = {**given, "bundle": given["bundle"] or given["bundle_type"]}
    body = None if given["split_boundaries"] is None else _boundaries
    return api.ask(request("PUT", NAMESPACE + "/{bundle}/split", named, query=query, body=body)).value


def _boundaries(given: Given) -> list[int]:
    try:
        return [int(text, 0) for text in given["split_boundaries"]]
    except ValueError:
        raise WrongUse("--split-boundaries takes numbers, with commas") from None


def _hash_positions(api: Api, given: Given) -> Any:
    if given["bundle"] is None:
        raise WrongUse("get-topic-positions needs --bundle")
    path = NAMESPACE + "/{bundle}/topicHashPositions"
    return api.ask(request("GET", path, given, query=(("topics", "topic_list"),))).value


def _on_backlog(method: str, what: str) -> Any:
    """Clear a backlog or remove a subscription: of the namespace or of one bundle."""

    def script(api: Api, given: Given) -> Any:
        asks = what == "clearBacklog" and not given["force"]
        if asks and not api.confirm(f"Clear the backlog of {given['namespace']}?"):
            raise WrongUse("not confirmed; --force does it without asking")
        path = NAMESPACE + ("" if given["bundle"] is None else "/{bundle}") + f"/{what}"
        return api.ask(request(method, path if given["sub"] is None else path + "/{sub}", given)).value

    return script


def _anti_affinity(api: Api, given: Given) -> Any:
    query = (("tenant", "tenant"),)
    return api.ask(request("GET", "/admin/v2/namespaces/{cluster}/antiAffinity/{group}", given, query=query)).value


def _of_cluster(api: Api, given: Given) -> Any:
    """Namespaces whose topics a cluster has. Apache Pulsar has no path for it either: ask for each."""
    found: list[str] = []
    for tenant in api.ask(AdminRequest("GET", "/admin/v2/tenants")).value:
        for namespace in api.ask(request("GET", "/admin/v2/namespaces/{tenant}", {"tenant": tenant})).value:
            clusters = api.ask(request("GET", NAMESPACE + "/replication", {"namespace": namespace})).value
            if given["cluster"] in clusters:
                found.append(namespace)
    return found


NAMESPACE_VERBS: Final[list[Verb]] = [
    verb("list", "List the namespaces of a tenant.", "GET", "/admin/v2/namespaces/{tenant}"),
    scripted("list-cluster", "List the namespaces that a cluster has.", ("cluster",), _of_cluster),
    verb(
        "topics",
        "List the topics of a namespace.",
        "GET",
        NAMESPACE + "/topics",
        flag("--mode -m", Kind.TEXT, "Which.", choices="PERSISTENT NON_PERSISTENT ALL"),
        SYSTEM_TOPICS,
        query="mode=mode includeSystemTopic=include_system_topic",
    ),
    verb("destinations", "List the topics of a namespace.", "GET", NAMESPACE + "/topics"),
    verb("bundles", "Show how a namespace is divided into bundles.", "GET", NAMESPACE + "/bundles"),
    verb("policies", "Show all policies of a namespace.", "GET", NAMESPACE),
    verb(
        "create",
        "Make a namespace.",
        "PUT",
        NAMESPACE,
        flag("--clusters -c", Kind.TEXTS, "Clusters that have its topics."),
        flag("--bundles -b", Kind.NUMBER, "Bundles that it is divided into.", default=0),
        body=_create_body,
    ),
    verb("delete", "Delete a namespace.", "DELETE", NAMESPACE, FORCE, query="force=force"),
    verb("permissions", "Show who may do what in a namespace.", "GET", NAMESPACE + "/permissions"),
    verb(
        "grant-permission",
        "Allow a role to act in a namespace.",
        "POST",
        NAMESPACE + "/permissions/{role}",
        _ROLE,
        flag("--actions", Kind.TEXTS, "produce, consume, functions, sources, sinks, packages.", required=True),
        body=value("actions"),
    ),
    verb("revoke-permission", "Take a role's rights back.", "DELETE", NAMESPACE + "/permissions/{role}", _ROLE),
    verb(
        "subscription-permission",
        "Show which roles may use which subscription.",
        "GET",
        NAMESPACE + "/permissions/subscription",
    ),
    verb(
        "grant-subscription-permission",
        "Allow roles to use a subscription.",
        "POST",
        NAMESPACE + "/permissions/subscription/{subscription}",
        _SUB,
        flag("--roles -rs", Kind.TEXTS, "Who, with commas.", required=True),
        body=value("roles"),
    ),
    verb(
        "revoke-subscription-permission",
        "Take the right to use a subscription back.",
        "DELETE",
        NAMESPACE + "/permissions/{subscription}/{role}",
        _SUB,
        flag("--role -r", Kind.TEXT, "Who.", required=True),
    ),
    scripted(
        "unload",
        "Let go of a namespace or a bundle; whoever uses it next makes a broker own it.",
        ("namespace",),
        _unload,
        BUNDLE,
        flag("--destinationBroker -d", Kind.TEXT, "The broker that takes it over."),
    ),
    scripted(
        "split-bundle",
        "Divide a bundle in two.",
        ("namespace",),
        _split,
        BUNDLE,
        flag("--bundle-type -bt", Kind.TEXT, "The largest or the busiest bundle.", choices="LARGEST HOT"),
        flag("--unload -u", Kind.SWITCH, "Let go of the new bundles, so that they find new owners."),
        flag("--split-algorithm-name -san", Kind.TEXT, "How the place to divide at is found."),
        flag("--split-boundaries -sb", Kind.TEXTS, "Where to divide, with commas."),
    ),
    scripted(
        "get-topic-positions",
        "Show where topics lie in their bundle.",
        ("namespace",),
        _hash_positions,
        BUNDLE,
        flag("--topic-list -tl", Kind.TEXTS, "Which topics, with commas."),
    ),
    scripted(
        "clear-backlog",
        "Skip everything that subscriptions of a namespace have not read.",
        ("namespace",),
        _on_backlog("POST", "clearBacklog"),
        flag("--sub -s", Kind.TEXT, "Only subscriptions of this name."),
        BUNDLE,
        flag("--force -force -f", Kind.SWITCH, "Do not ask."),
    ),
    scripted(
        "unsubscribe",
        "Delete subscriptions of a name from all topics of a namespace.",
        ("namespace",),
        _on_backlog("POST", "unsubscribe"),
        flag("--sub -s", Kind.TEXT, "Name of the subscriptions.", required=True),
        BUNDLE,
    ),
    scripted(
        "get-anti-affinity-namespaces",
        "List the namespaces of an anti-affinity group.",
        (),
        _anti_affinity,
        flag("--tenant -p", Kind.TEXT, "Only namespaces of this tenant."),
        flag("--cluster -c", Kind.TEXT, "The cluster.", required=True),
        flag("--group -g", Kind.TEXT, "The group.", required=True),
    ),
    verb(
        "set-property",
        "Set a property of a namespace.",
        "PUT",
        NAMESPACE + "/property/{key}/{value}",
        _KEY,
        flag("--value -v", Kind.TEXT, "Its value.", required=True),
    ),
    verb("get-property", "Show a property of a namespace.", "GET", NAMESPACE + "/property/{key}", _KEY),
    verb("remove-property", "Remove a property of a namespace.", "DELETE", NAMESPACE + "/property/{key}", _KEY),
    verb(
        "set-properties",
        "Set properties of a namespace.",
        "PUT",
        NAMESPACE + "/properties",
        flag("--properties -p", Kind.TEXTS, "name=value, with commas.", required=True),
        body=lambda given: pairs_of(",".join(given["properties"])),
    ),
    verb("get-properties", "Show the properties of a namespace.", "GET", NAMESPACE + "/properties"),
    verb("clear-properties", "Remove all properties of a namespace.", "DELETE", NAMESPACE + "/properties"),
    verb(
        "update-migration-state",
        "Say that a namespace moved to another cluster.",
        "POST",
        NAMESPACE + "/migration",
        flag("--migrated", Kind.SWITCH, "It did."),
        body=value("migrated"),
    ),
    verb(
        "set-bookie-affinity-group",
        "Set the groups of bookies that hold a namespace's entries.",
        "POST",
        NAMESPACE + "/persistence/bookieAffinity",
        flag("--primary-group -pg", Kind.TEXT, "Written to first; with commas.", required=True),
        flag("--secondary-group -sg", Kind.TEXT, "Written to when the first do not suffice; with commas."),
        body=members(
            bookkeeperAffinityGroupPrimary="primary_group", bookkeeperAffinityGroupSecondary="secondary_group"
        ),
    ),
    verb(
        "get-bookie-affinity-group",
        "Show the groups of bookies that hold a namespace's entries.",
        "GET",
        NAMESPACE + "/persistence/bookieAffinity",
    ),
    verb(
        "delete-bookie-affinity-group",
        "Let any bookie hold a namespace's entries.",
        "DELETE",
        NAMESPACE + "/persistence/bookieAffinity",
    ),
    *NAMESPACE_POLICY_VERBS,
]
