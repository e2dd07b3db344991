# SPDX-License-Identifier: Apache-2.0
"""Who may touch the metadata: users of ZooKeeper and etcd, certificates of the metadata server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadSetting, CannotStart, MetadataError
from magnetar.metadata.access import store_access
from magnetar.metadata.durable_tree import DurableTree
from magnetar.metadata.open import open_store
from magnetar.metadata.remote import RemoteStore
from magnetar.metadata.remote_server import MetadataServer
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.conformance.certificates import Authority
from tests.contracts.etcd_server import EtcdServer, etcd_server
from tests.contracts.zookeeper_server import zookeeper_server

pytestmark = pytest.mark.feature("F-SEC-04", "F-MD-02")
PASSWORD = "canary-of-the-password"


def _file(tmp_path: Path, text: str) -> str:
    file = tmp_path / f"credentials-{len(list(tmp_path.iterdir()))}"
    file.write_text(text)
    return str(file)


async def _opened(url: str, **settings: Any) -> MetadataStore:
    patient = MetadataSettings(operation_timeout_ms=5_000, **settings)
    return await open_store(url, disk=SimulatedDisk(), clock=SystemClock(), settings=patient)


def test_what_a_user_made_on_zookeeper_is_that_users_alone(tmp_path: Path, loop_run: Callable[[Any], Any]) -> None:
    url = f"zk:{zookeeper_server()}/owned-{tmp_path.name}"

    async def check() -> None:
        owner = await _opened(url, credentials_file=_file(tmp_path, f"magnetar:{PASSWORD}\n"))
        try:
            await owner.put("/secrets/one", b"1")
            assert (await owner.put("/secrets/one", b"2", expected_version=0)).version == 1
            with pytest.raises(CannotStart, match="NoAuth"):
                await _opened(url, credentials_file=_file(tmp_path, "magnetar:wrong"))
        finally:
            await owner.close()

    loop_run(check())
    server, _, chroot = url.removeprefix("zk:").partition("/")
    anybody = KazooClient(hosts=server)
    anybody.start()
    try:
        for operation, path, *given in (
            ("get", "secrets/one"),
            ("set", "secrets/one", b"3"),
            ("create", "secrets/two"),
            ("delete", "secrets/one"),
        ):
            with pytest.raises(NoAuthError):
                getattr(anybody, operation)(f"/{chroot}/{path}", *given)
    finally:
        anybody.stop()
        anybody.close()


def test_etcd_is_told_who_asks_and_told_again_when_it_forgot(tmp_path: Path, loop_run: Callable[[Any], Any]) -> None:
    etcd_server()
    server = EtcdServer()
    server.start()
    try:
        for path, body in (
            ("user/add", {"name": "root", "password": PASSWORD}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            assert httpx.post(f"{server.url}/v3/auth/{path}", json=body).status_code == 200, path

        async def check() -> None:
            nobody = await _opened(f"etcd:{server.url}")
            with pytest.raises(MetadataError, match="user name is empty"):
                await nobody.get("/a")
            await nobody.close()
            with pytest.raises((CannotStart, MetadataError)) as refused:
                await _opened(f"etcd:{server.url}", credentials_file=_file(tmp_path, "root:wrong"))
            assert "wrong" not in str(refused.value)
            store = await _opened(f"etcd:{server.url}", credentials_file=_file(tmp_path, f"root:{PASSWORD}"))
            try:
                await store.put("/a", b"1")
                store._client._token = "forgotten.1"  # type: ignore[attr-defined]
                record = await store.get("/a")
                assert record is not None
                assert record.value == b"1"
            finally:
                await store.close()

        loop_run(check())
    finally:
        server.remove()


def test_a_metadata_server_lets_certificates_of_its_authority_in(
    tmp_path: Path, loop_run: Callable[[Any], Any]
) -> None:
    authority, other = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")

    def tls(authority: Authority, name: str, signer: Authority | None = None) -> MetadataSettings:
        certificate, key = (signer or authority).sign(name)
        return MetadataSettings(
            operation_timeout_ms=2_000,
            tls_trust_file=str(authority.file),
            tls_certificate_file=certificate,
            tls_key_file=key,
        )

    async def check() -> None:
        disk = RealDisk(str(tmp_path / "data"))
        serving = tls(authority, "server")
        tree = await DurableTree.open(disk, "metadata", clock=SystemClock(), settings=serving)
        server = MetadataServer(tree, serving)
        port = await server.start("127.0.0.1", 0)
        try:
            store = await RemoteStore.open("127.0.0.1", port, tls(authority, "broker"))
            await store.put("/a", b"1")
            await store.close()
            for settings in (
                MetadataSettings(operation_timeout_ms=2_000),
                tls(authority, "intruder", other),
                tls(other, "deceived"),
            ):
                with pytest.raises(CannotStart):
                    await RemoteStore.open("127.0.0.1", port, settings)
        finally:
            await server.close()
            await tree.close()
            await disk.close()

    loop_run(check())


@pytest.mark.parametrize("text", ["", "no password", "user:", ":password", "one:line\nand:another"])
def test_credentials_that_cannot_be_read_are_refused_unquoted(tmp_path: Path, text: str) -> None:
    file = _file(tmp_path, text)
    with pytest.raises(BadSetting) as refused:
        store_access(MetadataSettings(credentials_file=file))
    assert file in str(refused.value)
    assert "password" not in str(refused.value).replace(file, "").replace("USER:PASSWORD", "")


def test_a_password_is_never_printed(tmp_path: Path) -> None:
    access = store_access(MetadataSettings(credentials_file=_file(tmp_path, f"user:{PASSWORD}")))
    assert access.password == PASSWORD
    assert PASSWORD not in repr(access)


def test_a_certificate_without_an_authority_is_refused() -> None:
    with pytest.raises(BadSetting, match="tls_trust_file"):
        store_access(MetadataSettings(tls_certificate_file="certificate.pem"))
