# SPDX-License-Identifier: Apache-2.0
"""TLS to the stores that others run: real ZooKeeper and etcd servers that let certificates of their authority in."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadSetting, CannotStart
from magnetar.metadata.etcd_access import etcd_access
from magnetar.metadata.open import open_store
from magnetar.metadata.store import Change, MetadataStore
from magnetar.runtime.client_tls import client_context
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.conformance.certificates import Authority
from tests.contracts.etcd_server import EtcdServer, etcd_server
from tests.contracts.zookeeper_server import zookeeper_with_tls
from tools.etcd import tls_flags

pytestmark = pytest.mark.feature("F-SEC-04", "F-MD-02")
SERVERS = ["https://127.0.0.1:2379"]


async def _opened(url: str, **settings: Any) -> MetadataStore:
    # Long enough for a machine with other work, short enough to be refused three times.
    patient = MetadataSettings(**{"operation_timeout_ms": 10_000, **settings})
    return await open_store(url, disk=SimulatedDisk(), clock=SystemClock(), settings=patient)


def _shown(authority: Authority, name: str, *, believed: Authority | None = None) -> dict[str, Any]:
    certificate, key = authority.sign(name)
    trust = str((believed or authority).file)
    return {"tls_trust_file": trust, "tls_certificate_file": certificate, "tls_key_file": key}


async def _check_serves(url: str, settings: dict[str, Any]) -> None:
    """Many answers at one time, some larger than a record of TLS, and a watch."""
    store = await _opened(url, **settings)
    seen: set[str] = set()
    all_seen = asyncio.Event()

    def see(change: Change) -> None:
        seen.add(change.path)
        if seen >= {f"/tls/{number}" for number in range(50)}:
            all_seen.set()

    try:
        store.watch("/tls", see)
        await asyncio.gather(*(store.put(f"/tls/{number}", b"%d" % number * 20_000) for number in range(50)))
        records = await asyncio.gather(*(store.get(f"/tls/{number}") for number in range(50)))
        assert [record.value[:2] for record in records if record is not None][10:] == [b"%d" % n for n in range(10, 50)]
        assert len(await store.children("/tls")) == 50
        async with asyncio.timeout(30):
            await all_seen.wait()
    finally:
        await store.close()


def test_zookeeper_over_tls(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "another")
    certificate, key = ours.sign("zookeeper")
    store = tmp_path / "store.pem"
    store.write_text(Path(key).read_text() + Path(certificate).read_text())

    async def check(server: str) -> None:
        url = f"zk:{server}/secret"
        await _check_serves(url, _shown(ours, "broker"))
        quick = {"operation_timeout_ms": 1_500}
        with pytest.raises(CannotStart, match="certificate verify failed"):
            await _opened(url, **_shown(ours, "deceived", believed=theirs), **quick)
        for settings in (_shown(theirs, "intruder", believed=ours), {"tls_trust_file": str(ours.file)}, {}):
            with pytest.raises(CannotStart, match="answered within"):
                await _opened(url, **settings, **quick)

    with zookeeper_with_tls(store, ours.file) as server:
        asyncio.run(check(server))


def test_etcd_over_tls(tmp_path: Path) -> None:
    etcd_server()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "another")
    shown = _shown(ours, "broker")
    context = client_context(shown["tls_trust_file"], shown["tls_certificate_file"], shown["tls_key_file"])
    server = EtcdServer(tls_flags(*ours.sign("etcd"), str(ours.file)), context)
    file = tmp_path / "etcd.yaml"
    file.write_text(
        f"useTls: true\ntlsTrustCertsFilePath: {shown['tls_trust_file']}\nauthority: localhost\n"
        f"tlsCertificateFilePath: {shown['tls_certificate_file']}\ntlsKeyFilePath: {shown['tls_key_file']}\n"
    )

    async def check() -> None:
        url = f"etcd:{server.url}/secret"
        await _check_serves(url, shown)
        await (await _opened(url, store_file=str(file))).close()
        for settings in (
            _shown(theirs, "intruder", believed=ours),
            _shown(ours, "deceived", believed=theirs),
            {"tls_trust_file": str(ours.file)},
            {},
        ):
            with pytest.raises(CannotStart):
                await _opened(url, **settings)
        file.write_text(file.read_text().replace("localhost", "elsewhere"))
        with pytest.raises(CannotStart, match="elsewhere"):
            await _opened(url, store_file=str(file))

    server.start()
    try:
        asyncio.run(check())
    finally:
        server.remove()


def test_who_asks_for_tls_never_speaks_in_the_clear(tmp_path: Path) -> None:
    file = tmp_path / "etcd.yaml"
    file.write_text("useTls: true\n")
    for settings in (MetadataSettings(store_file=str(file)), MetadataSettings(tls_trust_file="authority.pem")):
        with pytest.raises(BadSetting, match="etcd:https://"):
            etcd_access(settings, [*SERVERS, "http://127.0.0.1:2380"])
    assert etcd_access(MetadataSettings(), ["http://127.0.0.1:2380"]).uses_tls is False


def test_a_setting_of_ours_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "etcd.yaml"
    file.write_text(json.dumps({"useTls": True, "tlsTrustCertsFilePath": "theirs.pem", "tlsProvider": "OPENSSL"}))
    assert etcd_access(MetadataSettings(store_file=str(file)), SERVERS).trust_file == "theirs.pem"
    both = MetadataSettings(store_file=str(file), tls_trust_file="ours.pem")
    assert etcd_access(both, SERVERS).trust_file == "ours.pem"
    file.write_text("useTls: false\ntlsTrustCertsFilePath: theirs.pem\n")
    assert etcd_access(MetadataSettings(store_file=str(file)), SERVERS).uses_tls is False
    file.write_text("")
    assert etcd_access(MetadataSettings(store_file=str(file)), SERVERS).uses_tls is False


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("useTls: maybe", "useTls should be true or false"),
        ("useTls: true\ntlsTrustCertFilePath: x", "unknown name 'tlsTrustCertFilePath'"),
        ("useTls: true\ntlsCertificateFilePath: x", "needs tlsTrustCertsFilePath"),
        ("tlsKeyFilePath: 5", "tlsKeyFilePath should be a text"),
        ("- useTls", "should have lines"),
        ("{", "is not YAML"),
    ],
)
def test_a_file_that_cannot_be_meant_stops_the_start(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "etcd.yaml"
    file.write_text(text)
    with pytest.raises(BadSetting, match=said):
        etcd_access(MetadataSettings(store_file=str(file)), SERVERS)
