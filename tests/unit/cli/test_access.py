# SPDX-License-Identifier: Apache-2.0
"""Where a command finds its cluster: flags before environment before context before client.conf."""

from pathlib import Path

import pytest

from magnetar.cli.access import access_of
from magnetar.cli.contexts import load_contexts
from magnetar.errors import BadSetting

CONF = """
webServiceUrl=https://conf:8443/
brokerServiceUrl=pulsar+ssl://conf:6651/
authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
authParams=token:conf
tlsTrustCertsFilePath=/certs/ca.pem
tlsEnableHostnameVerification=true
useKeyStoreTls=false
"""


def test_the_nearest_word_counts(tmp_path: Path) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text(CONF)
    environment = {"MAGNETAR_CONTEXTS": str(tmp_path / "contexts.json"), "PULSAR_CLIENT_CONF": str(conf)}
    access = access_of({}, environment)
    assert (access.admin_url, access.service_url) == ("https://conf:8443", "pulsar+ssl://conf:6651")
    assert (access.auth_params, access.trust_certs, access.validates_hostname) == ("token:conf", "/certs/ca.pem", True)
    contexts = load_contexts(environment)
    contexts.by_name["east"] = {"webServiceUrl": "http://east:8080"}
    contexts.current = "east"
    contexts.save()
    assert access_of({}, environment).admin_url == "http://east:8080"
    assert access_of({}, environment).service_url == "pulsar+ssl://conf:6651"
    environment["MAGNETAR_ADMIN_URL"] = "http://set:8080"
    assert access_of({}, environment).admin_url == "http://set:8080"
    given = {"admin_url": "http://typed:8080", "tls_allow_insecure": True}
    access = access_of(given, environment)
    assert (access.admin_url, access.allow_insecure) == ("http://typed:8080", True)


def test_without_anything_it_is_this_machine(tmp_path: Path) -> None:
    access = access_of({}, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert (access.admin_url, access.service_url) == ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
    assert access.authentication() is None


def test_what_cannot_be_used_is_said(tmp_path: Path) -> None:
    environment = {"MAGNETAR_CONTEXTS": str(tmp_path / "contexts.json")}
    with pytest.raises(BadSetting, match="no context east"):
        access_of({"context": "east"}, environment)
    with pytest.raises(BadSetting, match="cannot be read"):
        access_of({"config": str(tmp_path / "none.conf")}, environment)
    (tmp_path / "contexts.json").write_text("{")
    with pytest.raises(BadSetting, match="cannot be read"):
        access_of({}, environment)
