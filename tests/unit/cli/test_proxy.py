# SPDX-License-Identifier: Apache-2.0
import pytest

from magnetar.cli.proxy import check_discovery
from magnetar.config.key import PROXY
from magnetar.config.load import load_settings
from magnetar.errors import BadSetting


def test_a_proxy_must_know_where_brokers_are() -> None:
    with pytest.raises(BadSetting, match="A proxy must know where brokers are"):
        check_discovery(load_settings(role=PROXY), False)
    with pytest.raises(BadSetting, match="brokerServiceURLTLS"):
        check_discovery(load_settings(environ={"tlsEnabledWithBroker": "true"}, role=PROXY), False)
    for given in (
        {"brokerServiceURL": "pulsar://b:6650"},
        {"metadataStoreUrl": "zk:h:2181"},
        {"zookeeperServers": "h:2181"},
        {"brokerServiceURLTLS": "pulsar+ssl://b:6651", "tlsEnabledWithBroker": "true"},
    ):
        check_discovery(load_settings(environ=given, role=PROXY), False)
    check_discovery(load_settings(role=PROXY), True)


def test_ports_of_a_proxy_have_their_own_keys() -> None:
    given = {"servicePort": "7650", "servicePortTls": "7651", "webServicePort": "9090"}
    settings = load_settings(environ=given, role=PROXY)
    assert (settings.broker.port, settings.security.tls_port, settings.broker.http_port) == (7650, 7651, 9090)
    assert load_settings(environ=given).broker.port == 6650
