# SPDX-License-Identifier: Apache-2.0
"""Where a proxy finds brokers."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from magnetar.config.proxy import ProxySettings
from magnetar.errors import BadSetting, ServiceNotReady
from magnetar.metadata.memory import MemoryTree
from magnetar.proxy.brokers import BROKERS_PATH, Brokers
from magnetar.proxy.targets import Target
from magnetar.runtime.tasks import Tasks
from tests.contracts.metadata_stores import Seen

pytestmark = [pytest.mark.feature("F-PXY-03")]


def _crash(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


def _record(name: str, port: int) -> bytes:
    return json.dumps(
        {"pulsarServiceUrl": f"pulsar://{name}:{port}", "webServiceUrl": f"http://{name}:8080", "bundles": {}}
    ).encode()


def test_brokers_are_followed_as_they_come_and_go(loop_run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        store, other = tree.open_session(), tree.open_session()
        tasks = Tasks("test", _crash)
        brokers = await Brokers.open(ProxySettings(), Random(1), store, tasks)
        with pytest.raises(ServiceNotReady, match="No broker"):
            brokers.services()
        told: Seen[Any] = Seen()
        store.watch(BROKERS_PATH, told)
        await other.put(f"{BROKERS_PATH}/a:8080", _record("a", 1), ephemeral=True)
        await other.put(f"{BROKERS_PATH}/b:8080", _record("b", 2), ephemeral=True)
        await other.put(f"{BROKERS_PATH}/c:8080", b"garbage", ephemeral=True)
        await told.until(lambda _: len(brokers.known()) == 2)
        assert brokers.known() == {Target("a", 1), Target("b", 2)}
        assert sorted(brokers.web_urls()) == ["http://a:8080", "http://b:8080"]
        assert {brokers.services()[0] for _ in range(50)} == brokers.known()
        await other.delete(f"{BROKERS_PATH}/a:8080")
        await told.until(lambda _: len(brokers.known()) == 1)
        assert brokers.services() == [Target("b", 2)]
        await tasks.close()
        await store.close()
        await other.close()

    loop_run(scenario())


def test_a_broker_with_an_odd_web_url_is_left_out(
    loop_run: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """One of them made every request through the proxy fail."""
    odd = ("http://[::1", "http://", "ftp://c:1", "c:8080", "http://c:99999", "http://c:0", "http://c\x7f")

    async def scenario() -> None:
        store = MemoryTree().open_session()
        tasks = Tasks("test", _crash)
        await store.put(f"{BROKERS_PATH}/a:8080", _record("a", 1))
        for number, url in enumerate(odd):
            record = json.dumps({"pulsarServiceUrl": "pulsar://c:3", "webServiceUrl": url}).encode()
            await store.put(f"{BROKERS_PATH}/c:{number}", record)
        brokers = await Brokers.open(ProxySettings(), Random(1), store, tasks)
        assert brokers.known() == {Target("a", 1)}
        assert brokers.known_web() == {Target("a", 8080)}
        assert brokers.web_urls() == ["http://a:8080"]
        assert len([record for record in caplog.records if "is left out" in record.message]) == len(odd)
        await tasks.close()
        await store.close()

    loop_run(scenario())


def test_brokers_may_be_named_by_urls(loop_run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        tasks = Tasks("test", _crash)
        settings = ProxySettings(broker_url="pulsar://a:6650,b:6650", broker_web_url="http://a:8080,b:8080/")
        brokers = await Brokers.open(settings, Random(1), None, tasks)
        assert sorted(brokers.services()) == [Target("a", 6650), Target("b", 6650)]
        assert sorted(brokers.web_urls()) == ["http://a:8080", "http://b:8080"]
        assert brokers.known() == set(brokers.services())
        with pytest.raises(BadSetting, match="cannot be used"):
            await Brokers.open(ProxySettings(broker_url="pulsar://a"), Random(1), None, tasks)
        with pytest.raises(BadSetting, match="is not the URL of a web server"):
            await Brokers.open(ProxySettings(broker_web_url="http://a,[::1"), Random(1), None, tasks)
        https = ProxySettings(broker_web_url="http://A", broker_web_url_tls="https://[::1]")
        assert (await Brokers.open(https, Random(1), None, tasks)).known_web() == {Target("a", 80), Target("::1", 443)}
        await tasks.close()

    loop_run(scenario())
