# SPDX-License-Identifier: Apache-2.0
"""TLS of a server: files that cannot be used, and files that change."""

import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from magnetar.errors import BadSetting
from magnetar.runtime.server_tls import ServerTls
from tests.conformance.certificates import Authority


def test_changed_files_are_taken_up_once_and_a_wrong_pair_never(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("localhost")
    tls = ServerTls(certificate, key, str(authority.file))
    assert not tls.reload_changed()
    authority.sign("localhost")
    _touch(certificate, 1)
    assert tls.reload_changed()
    assert not tls.reload_changed()
    Path(key).write_text("no key")
    _touch(key, 2)
    assert not tls.reload_changed()
    Path(key).unlink()
    assert not tls.reload_changed()
    authority.sign("localhost")
    _touch(key, 3)
    assert tls.reload_changed()


def test_certificates_of_clients_are_asked_for_as_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.sign("localhost")
    trust = str(authority.file)
    assert ServerTls(*files).context.verify_mode is ssl.CERT_NONE
    assert ServerTls(*files, trust).context.verify_mode is ssl.CERT_OPTIONAL
    assert ServerTls(*files, trust, asks_certificate=False).context.verify_mode is ssl.CERT_NONE
    assert ServerTls(*files, trust, certificate_required=True).context.verify_mode is ssl.CERT_REQUIRED
    only = ServerTls(*files, protocols=("TLSv1.3",)).context
    assert only.minimum_version is only.maximum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("trust", "options"),
    [
        ("/nowhere", {}),
        ("", {"certificate_required": True}),
        ("", {"protocols": ("SSLv3",)}),
        ("", {"protocols": ("TLSv1.1",)}),
        ("", {"ciphers": "none-such"}),
    ],
)
def test_what_cannot_be_used_stops_the_start(tmp_path: Path, trust: str, options: dict[str, Any]) -> None:
    files = Authority(tmp_path).sign("localhost")
    with pytest.raises(BadSetting):
        ServerTls(*files, trust, **options)


@pytest.mark.parametrize("files", [("", ""), ("/nowhere", "/nowhere")])
def test_without_a_certificate_there_is_no_tls(files: tuple[str, str]) -> None:
    with pytest.raises(BadSetting, match="tlsCertificateFilePath"):
        ServerTls(*files)


def _touch(path: str, second: int) -> None:
    os.utime(path, (second, second))
