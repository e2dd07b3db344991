# SPDX-License-Identifier: Apache-2.0
"""`clusters`, `tenants` (with the older name `properties`) and `ns-isolation-policy`.

Decides.
"""

from pathlib import Path
from typing import Any, Final

from magnetar.cli.values import WrongUse, texts_of
from magnetar.cli.verbs.verb import FORCE, AdminRequest, Api, Verb, request, scripted, value, verb
from magnetar.cli.words import Given, Kind, flag

_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_TENANT: Final = "/admin/v2/tenants/{tenant}"
_DOMAIN: Final = _CLUSTER + "/failureDomains/{domain_name}"
_ISOLATION: Final = _CLUSTER + "/namespaceIsolationPolicies"

# Flag, member of the record, kind, help.
_DATA: Final = (
    ("--url", "serviceUrl", Kind.TEXT, "Where its brokers serve HTTP."),
    ("--url-secure", "serviceUrlTls", Kind.TEXT, "Where its brokers serve HTTPS."),
    ("--broker-url", "brokerServiceUrl", Kind.TEXT, "Where its brokers serve clients."),
    ("--broker-url-secure", "brokerServiceUrlTls", Kind.TEXT, "Where its brokers serve clients with TLS."),
    ("--proxy-url", "proxyServiceUrl", Kind.TEXT, "A proxy in front of it."),
    ("--auth-plugin", "authenticationPlugin", Kind.TEXT, "How brokers of other clusters prove who they are."),
    ("--auth-parameters", "authenticationParameters", Kind.TEXT, "What they prove it with."),
    ("--proxy-protocol", "proxyProtocol", Kind.TEXT, "How the proxy finds the broker: SNI."),
    ("--tls-enable", "brokerClientTlsEnabled", Kind.SWITCH, "Other clusters connect with TLS."),
    ("--tls-allow-insecure", "tlsAllowInsecureConnection", Kind.SWITCH, "They take any certificate."),
    ("--tls-enable-keystore", "brokerClientTlsEnabledWithKeyStore", Kind.SWITCH, "Their keys are in a key store."),
    ("--tls-trust-store-type", "brokerClientTlsTrustStoreType", Kind.TEXT, "Type of the trust store."),
    ("--tls-trust-store", "brokerClientTlsTrustStore", Kind.TEXT, "The trust store."),
    ("--tls-trust-store-pwd", "brokerClientTlsTrustStorePassword", Kind.TEXT, "Its password."),
    ("--tls-key-store-type", "brokerClientTlsKeyStoreType", Kind.TEXT, "Type of the key store."),
    ("--tls-key-store", "brokerClientTlsKeyStore", Kind.TEXT, "The key store."),
    ("--tls-key-store-pwd", "brokerClientTlsKeyStorePassword", Kind.TEXT, "Its password."),
    ("--tls-trust-certs-filepath", "brokerClientTrustCertsFilePath", Kind.TEXT, "Certificates that are trusted."),
    ("--tls-key-filepath", "brokerClientKeyFilePath", Kind.TEXT, "The private key."),
    ("--tls-certs-filepath", "brokerClientCertificateFilePath", Kind.TEXT, "The certificate."),
    ("--tls-factory-plugin", "brokerClientSslFactoryPlugin", Kind.TEXT, "Kept for other brokers; not used here."),
    ("--tls-factory-plugin-params", "brokerClientSslFactoryPluginParams", Kind.TEXT, "Its parameters."),
    ("--listener-name", "listenerName", Kind.TEXT, "The listener that other clusters use."),
)
_DATA_FLAGS: Final = (
    *(flag(name, kind, help) for name, _, kind, help in _DATA),
    flag("--cluster-config-file", Kind.TEXT, "A YAML file with the record; flags come after it."),
)


def _record(given: Given) -> dict[str, Any]:
    record: dict[str, Any] = {}
    if given["cluster_config_file"] is not None:
        import yaml

        try:
            loaded = yaml.safe_load(Path(given["cluster_config_file"]).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            raise WrongUse(f"{given['cluster_config_file']} cannot be read: {error}") from None
        if not isinstance(loaded, dict):
            raise WrongUse(f"{given['cluster_config_file']} should hold the members of a cluster's record")
        record.update(loaded)
    for each, (_, member, kind, _help) in zip(_DATA_FLAGS, _DATA, strict=False):
        content = given[each.key]
        if content is not None and (content or kind is not Kind.SWITCH or member not in record):
            record[member] = content
    return record


def _delete_cluster(api: Api, given: Given) -> Any:
    """With --all its namespaces go first, from every tenant."""
    if given["all"]:
        for tenant in api.ask(AdminRequest("GET", "/admin/v2/tenants")).value:
            for namespace in api.ask(request("GET", "/admin/v2/namespaces/{tenant}", {"tenant": tenant})).value:
                path = "/admin/v2/namespaces/{namespace}"
                names = {"namespace": namespace}
                if given["cluster"] in api.ask(request("GET", path + "/replication", names)).value:
                    api.ask(request("DELETE", path, names))
    return api.ask(request("DELETE", _CLUSTER, given)).value


def _list_clusters(api: Api, given: Given) -> Any:
    clusters = api.ask(AdminRequest("GET", "/admin/v2/clusters")).value
    if not given["current"]:
        return clusters
    own = api.ask(AdminRequest("GET", "/admin/v2/brokers/configuration/runtime")).value.get("clusterName")
    return [f"{name}(*)" if name == own else name for name in clusters]


def _domain_body(given: Given) -> dict[str, Any]:
    return {"brokers": texts_of(given["broker_list"])} if given["broker_list"] else {}


_DOMAIN_NAME: Final = flag("--domain-name", Kind.TEXT, "Name of the domain.", required=True)
_BROKERS: Final = flag("--broker-list", Kind.TEXT, "Its brokers, with commas.")
_MIGRATION: Final = (
    ("--service-url", "serviceUrl", "HTTP of the new cluster."),
    ("--service-url-secure", "serviceUrlTls", "HTTPS of the new cluster."),
    ("--broker-url", "brokerServiceUrl", "Where the new cluster serves clients."),
    ("--broker-url-secure", "brokerServiceUrlTls", "Where it serves clients with TLS."),
)


def _migration(given: Given) -> dict[str, Any]:
    members = {member: given[name.lstrip("-").replace("-", "_")] for name, member, _ in _MIGRATION}
    return {member: text for member, text in members.items() if text is not None}


CLUSTER_VERBS: Final[list[Verb]] = [
    scripted(
        "list",
        "List the clusters.",
        (),
        _list_clusters,
        flag("--current -c", Kind.SWITCH, "Mark the one that was asked."),
    ),
    verb("get", "Show a cluster's record.", "GET", _CLUSTER),
    verb("create", "Make a cluster known.", "PUT", _CLUSTER, *_DATA_FLAGS, body=_record),
    verb("update", "Change a cluster's record.", "POST", _CLUSTER, *_DATA_FLAGS, body=_record),
    scripted(
        "delete",
        "Forget a cluster.",
        ("cluster",),
        _delete_cluster,
        flag("--all -a", Kind.SWITCH, "Its namespaces first."),
    ),
    verb("get-peer-clusters", "List a cluster's peers.", "GET", _CLUSTER + "/peers"),
    verb(
        "update-peer-clusters",
        "Set a cluster's peers.",
        "POST",
        _CLUSTER + "/peers",
        flag("--peer-clusters", Kind.TEXTS, 'Names, with commas; "" for none.', required=True),
        body=value("peer_clusters"),
    ),
    verb("get-cluster-migration", "Show where a cluster moved to.", "GET", _CLUSTER + "/migrate"),
    verb(
        "update-cluster-migration",
        "Say where a cluster moves to.",
        "POST",
        _CLUSTER + "/migrate",
        flag("--migrated", Kind.SWITCH, "It moved."),
        *(flag(name, Kind.TEXT, help) for name, _, help in _MIGRATION),
        query="migrated=migrated",
        body=_migration,
    ),
    verb("list-failure-domains", "List a cluster's failure domains.", "GET", _CLUSTER + "/failureDomains"),
    verb("get-failure-domain", "Show a failure domain.", "GET", _DOMAIN, _DOMAIN_NAME),
    verb("create-failure-domain", "Make a failure domain.", "POST", _DOMAIN, _DOMAIN_NAME, _BROKERS, body=_domain_body),
    verb(
        "update-failure-domain", "Change a failure domain.", "POST", _DOMAIN, _DOMAIN_NAME, _BROKERS, body=_domain_body
    ),
    verb("delete-failure-domain", "Delete a failure domain.", "DELETE", _DOMAIN, _DOMAIN_NAME),
]

_ROLES: Final = flag("--admin-roles -r", Kind.TEXTS, "Who administers it, with commas.")
_ALLOWED: Final = flag("--allowed-clusters -c", Kind.TEXTS, "Clusters that it may use, with commas; all when left out.")


def _create_tenant(api: Api, given: Given) -> Any:
    clusters = given["allowed_clusters"]
    if not clusters:
        clusters = api.ask(AdminRequest("GET", "/admin/v2/clusters")).value
    return _send_tenant(api, "PUT", given, given["admin_roles"] or [], clusters)


def _update_tenant(api: Api, given: Given) -> Any:
    roles, clusters = given["admin_roles"], given["allowed_clusters"]
    if roles is None or clusters is None:
        now = api.ask(request("GET", _TENANT, given)).value
        roles = now["adminRoles"] if roles is None else roles
        clusters = now["allowedClusters"] if clusters is None else clusters
    return _send_tenant(api, "POST", given, roles, clusters)


def _send_tenant(api: Api, method: str, given: Given, roles: list[str], clusters: list[str]) -> Any:
    body = {"adminRoles": roles, "allowedClusters": clusters}
    return api.ask(request(method, _TENANT, given, body=lambda _: body)).value


TENANT_VERBS: Final[list[Verb]] = [
    verb("list", "List the tenants.", "GET", "/admin/v2/tenants"),
    verb("get", "Show who administers a tenant and which clusters it may use.", "GET", _TENANT),
    scripted("create", "Make a tenant.", ("tenant",), _create_tenant, _ROLES, _ALLOWED),
    scripted("update", "Change a tenant.", ("tenant",), _update_tenant, _ROLES, _ALLOWED),
    verb("delete", "Delete a tenant.", "DELETE", _TENANT, FORCE, query="force=force"),
]


def _isolation(given: Given) -> dict[str, Any]:
    body: dict[str, Any] = {
        "namespaces": given["namespaces"],
        "primary": given["primary"],
        "secondary": given["secondary"],
        "auto_failover_policy": {
            "policy_type": given["auto_failover_policy_type"],
            "parameters": given["auto_failover_policy_params"],
        },
    }
    if given["unload_scope"] is not None:
        body["unload_scope"] = given["unload_scope"]
    return body


ISOLATION_VERBS: Final[list[Verb]] = [
    verb("list", "List a cluster's isolation policies.", "GET", _ISOLATION),
    verb("get", "Show an isolation policy.", "GET", _ISOLATION + "/{policy}"),
    verb(
        "set",
        "Say which brokers serve which namespaces.",
        "POST",
        _ISOLATION + "/{policy}",
        flag("--namespaces", Kind.TEXTS, "Patterns of namespaces, with commas.", required=True),
        flag("--primary", Kind.TEXTS, "Patterns of the brokers that serve them.", required=True),
        flag("--secondary", Kind.TEXTS, "Patterns of the brokers that help out.", default=[]),
        flag("--auto-failover-policy-type", Kind.TEXT, "When those help out.", required=True, choices="min_available"),
        flag("--auto-failover-policy-params", Kind.PAIRS, "min_limit=1,usage_threshold=80.", required=True),
        flag(
            "--unload-scope",
            Kind.TEXT,
            "Which namespaces move at once.",
            choices="none all_matching changed",
        ),
        body=_isolation,
    ),
    verb("delete", "Delete an isolation policy.", "DELETE", _ISOLATION + "/{policy}"),
    verb("brokers", "Show which broker serves which namespaces.", "GET", _ISOLATION + "/brokers"),
    verb(
        "broker",
        "Show which namespaces one broker serves.",
        "GET",
        _ISOLATION + "/brokers/{broker}",
        flag("--broker", Kind.TEXT, "The broker.", required=True),
    ),
]
