# SPDX-License-Identifier: Apache-2.0
"""How a process proves itself to etcd: as to any store, or as the file says that metadataStoreConfigPath names.

The file is YAML with Pulsar's names. A setting `metadata.…` wins over the file's.
Carries.
"""

from typing import Any, Final

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadSetting
from magnetar.metadata.access import StoreAccess, store_access
from magnetar.runtime.small_file import read_small_file

_FILE_BYTES_MAX: Final = 65_536
_TEXTS: Final = {
    "tlsTrustCertsFilePath": "trust_file",
    "tlsCertificateFilePath": "certificate_file",
    "tlsKeyFilePath": "key_file",
    "authority": "server_name",
}
_OTHERS: Final = ("useTls", "tlsProvider")


def etcd_access(settings: MetadataSettings, servers: list[str]) -> StoreAccess:
    """BadSetting or CannotStart when a file cannot be used, or when TLS was asked for and a server is named without."""
    access = store_access(settings)
    wants_tls = access.uses_tls
    if settings.store_file:
        told = _read(settings.store_file)
        wants_tls |= told.pop("useTls", False)
        if not wants_tls:
            told = {field: text for field, text in told.items() if field == "server_name"}
        access = access._replace(**{field: text for field, text in told.items() if not getattr(access, field)})
    if access.certificate_file and not access.trust_file:
        raise BadSetting(f"{settings.store_file}: tlsCertificateFilePath needs tlsTrustCertsFilePath: whom to believe")
    plain = next((server for server in servers if not server.startswith("https:")), None)
    if wants_tls and plain is not None:
        raise BadSetting(f"TLS to etcd was asked for, and the metadata URL names {plain}: write etcd:https://HOST:2379")
    return access


def _read(path: str) -> dict[str, Any]:
    """By fields of StoreAccess, and useTls."""
    # Imported here: few have such a file.
    import yaml

    where = f"{path} (metadataStoreConfigPath)"
    try:
        found = yaml.safe_load(read_small_file(path, _FILE_BYTES_MAX).decode())
    except (ValueError, RecursionError, yaml.YAMLError):
        raise BadSetting(f"{where} is not YAML") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadSetting(f"{where} should have lines such as `useTls: true`")
    told: dict[str, Any] = {}
    for name, value in found.items():
        if name not in _TEXTS and name not in _OTHERS:
            raise BadSetting(
                f"{where} has an unknown name {str(name)[:100]!r}; known: {', '.join((*_OTHERS, *_TEXTS))}"
            )
        if name == "useTls" and not isinstance(value, bool):
            raise BadSetting(f"{where}: useTls should be true or false")
        if name in _TEXTS and not isinstance(value, str | None):
            raise BadSetting(f"{where}: {name} should be a text")
        if name == "useTls":
            told[name] = value
        elif name in _TEXTS and value:
            told[_TEXTS[name]] = value
    return told
