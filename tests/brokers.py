# SPDX-License-Identifier: Apache-2.0
"""Questions to the brokers of a real cluster: who owns what, over TCP, over HTTP, and as the metadata has it."""

import asyncio
import json
import tempfile
from typing import Any
from urllib.parse import quote_plus

import httpx
import pulsar

from magnetar.config.metadata import MetadataSettings
from magnetar.metadata.open import open_store
from magnetar.metadata.store import Record
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.real_disk import RealDisk
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.cluster import Cluster, RoleProcess
from tests.conformance.raw_client import RawClient

Answer = pb.CommandLookupTopicResponse
Kind = pb.BaseCommand.Type
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
# A dead broker is noticed soon, and so is a new load; what else the machine does is left out.
QUICK = {
    "metadataStoreSessionTimeoutMillis": "4000",
    "loadBalancerReportUpdateMinIntervalMillis": "600",
    "loadBalancerCPUResourceWeight": "0",
    "loadBalancerMemoryResourceWeight": "0",
}
REDIRECTS_MAX = 5


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def broker_id(role: RoleProcess) -> str:
    return str(role.said["webServiceUrl"]).removeprefix("http://")


def by_id(cluster: Cluster, name: str) -> RoleProcess:
    return next(role for role in cluster.brokers if broker_id(role) == name)


def look_up(role: RoleProcess, topic: str, *, authoritative: bool = False, listener: str = "") -> Answer:
    """One LOOKUP at one broker, and its answer as it is."""
    with RawClient(port_of(role.said["serviceUrl"])) as client:
        request = pb.CommandLookupTopic(topic=topic, request_id=client.request_id(), authoritative=authoritative)
        if listener:
            request.advertised_listener_name = listener
        client.say(Kind.LOOKUP, request)
        return client.answer_to(request.request_id).lookupTopicResponse


def owner_of(cluster: Cluster, topic: str, *, ask: RoleProcess | None = None) -> RoleProcess:
    """Follow redirects to the owner, as a client does."""
    role, authoritative = ask or cluster.brokers[0], False
    for _ in range(REDIRECTS_MAX):
        answer = look_up(role, topic, authoritative=authoritative)
        assert answer.response != Answer.Failed, answer
        role = next(each for each in cluster.brokers if each.said["serviceUrl"] == answer.brokerServiceUrl)
        if answer.response == Answer.Connect:
            return role
        authoritative = answer.authoritative
    raise AssertionError(f"{topic} is redirected for ever")


def admin(role: RoleProcess, method: str, path: str, *, follow: bool = True, **given: Any) -> httpx.Response:
    with httpx.Client(base_url=role.said["webServiceUrl"], timeout=60, follow_redirects=follow) as client:
        return client.request(method, path, **given)


def done(role: RoleProcess, method: str, path: str, **given: Any) -> Any:
    """The answer's JSON, if it has one; a refusal fails the test."""
    answer = admin(role, method, path, **given)
    assert answer.status_code < 300, (method, path, answer.status_code, answer.text)
    try:
        return answer.json() if answer.content else None
    except ValueError:
        return answer.text


def make_namespace(cluster: Cluster, name: str, bundles: int = 4) -> str:
    done(cluster.brokers[0], "PUT", f"/admin/v2/namespaces/public/{name}", json={"bundles": {"numBundles": bundles}})
    return f"public/{name}"


def record(cluster: Cluster, path: str) -> Record | None:
    """A record as it stands in the metadata."""

    async def read() -> Record | None:
        with tempfile.TemporaryDirectory() as directory:
            disk = RealDisk(directory)
            store = await open_store(cluster.metadata_url, disk=disk, clock=SystemClock(), settings=MetadataSettings())
            try:
                return await store.get(path)
            finally:
                await store.close()
                await disk.close()

    return asyncio.run(read())


def value(cluster: Cluster, path: str) -> dict[str, Any]:
    found = record(cluster, path)
    assert found is not None, f"there is no record {path}"
    decoded: dict[str, Any] = json.loads(found.value)
    return decoded


def bundle_of(role: RoleProcess, topic: str) -> str:
    domain, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return admin(role, "GET", f"/lookup/v2/topic/{domain}/{tenant}/{namespace}/{quote_plus(name)}/bundle").text


def client_of(cluster: Cluster) -> pulsar.Client:
    return pulsar.Client(cluster.service_url, operation_timeout_seconds=60, logger=QUIET)
