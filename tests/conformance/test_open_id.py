# SPDX-License-Identifier: Apache-2.0
"""OAuth 2 and OpenID Connect from end to end: the official client buys tokens, the broker believes their issuer."""

import json
from collections.abc import Iterator

import httpx
import pulsar
import pytest

from tests.conformance.identity_provider import AUDIENCE, IdentityProvider
from tests.conftest import Eventually
from tests.processes import StandaloneProcess

pytestmark = pytest.mark.feature("B-20", "F-SEC-01")
TOPIC = "persistent://public/default/bought"


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider().serving() as serving:
        yield serving


@pytest.fixture(scope="module")
def standalone(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID",
        "openIDAllowedTokenIssuers": provider.url,
        "openIDAllowedAudiences": AUDIENCE,
        "superUserRoles": "operator",
        "security.login_pause_max_ms": "1",
    }
    with StandaloneProcess(tmp_path_factory.mktemp("open-id"), environment=settings) as process:
        yield process


def status(standalone: StandaloneProcess, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{standalone.web_url}/admin/v2/tenants", headers=headers, timeout=30).status_code


def test_the_official_client_buys_its_token(
    standalone: StandaloneProcess, provider: IdentityProvider, eventually: Eventually
) -> None:
    eventually(lambda: status(standalone, provider.token("operator")) == 200)
    bought = {"issuer_url": provider.url, "client_id": "operator", "client_secret": "secret", "audience": AUDIENCE}
    client = pulsar.Client(
        standalone.service_url,
        authentication=pulsar.AuthenticationOauth2(json.dumps({**bought, "type": "client_credentials"})),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        consumer = client.subscribe(TOPIC, "s")
        client.create_producer(TOPIC).send(b"proven")
        assert consumer.receive(20_000).data() == b"proven"
    finally:
        client.close()
    assert "/token" in provider.asked
    for refused in (provider.token("operator", aud="another"), provider.token("operator", exp=1)):
        assert status(standalone, refused) == 401
    assert status(standalone, provider.token("stranger")) == 403
