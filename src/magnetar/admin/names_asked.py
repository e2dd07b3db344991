# SPDX-License-Identifier: Apache-2.0
"""Names as they stand in a request's path: still encoded, so that a '/' inside a name never splits the path.

Decides.
"""

from magnetar.admin.answers import AdminRefused
from magnetar.errors import BadName
from magnetar.names import NamespaceName, TopicDomain, TopicName, check_subscription, check_tenant, decode_name

DOMAIN_PATTERN = "persistent|non-persistent"


def decoded_tenant(text: str) -> str:
    try:
        return check_tenant(decode_name(text))
    except BadName as error:
        raise AdminRefused(412, "Tenant name is not valid") from error


def decoded_namespace(tenant: str, namespace: str) -> NamespaceName:
    try:
        return NamespaceName(decode_name(tenant), decode_name(namespace))
    except BadName as error:
        raise AdminRefused(412, "Namespace name is not valid") from error


def decoded_topic(domain: str, tenant: str, namespace: str, topic: str) -> TopicName:
    try:
        return TopicName(TopicDomain(domain), decoded_namespace(tenant, namespace), decode_name(topic))
    except BadName as error:
        raise AdminRefused(412, f"Topic name is not valid: {error}") from error


def decoded_subscription(text: str) -> str:
    return check_subscription(decode_name(text))
