# SPDX-License-Identifier: Apache-2.0
"""Whether a process listens to a network and asks nobody who they are; said so that it cannot be overlooked.

Decides.
"""

from collections.abc import Callable
from ipaddress import ip_address

from magnetar.config.load import Settings
from magnetar.errors import CannotStart

_RULE = "!" * 78


def check_exposure(settings: Settings, say: Callable[[str], object]) -> None:
    """A warning in a frame; with --production, CannotStart."""
    if not settings.security.authentication_enabled:
        _check(settings.broker.bind_address, settings, "authenticationEnabled=true", say)


def check_metadata_exposure(address: str, settings: Settings, say: Callable[[str], object]) -> None:
    """As for brokers: a metadata server asks for certificates, or it asks for nothing."""
    if not settings.metadata.tls_certificate_file:
        _check(address, settings, "metadata.tls_certificate_file and metadata.tls_trust_file", say)


def check_bookie_exposure(settings: Settings, say: Callable[[str], object]) -> None:
    """As for brokers; whoever speaks BookKeeper's protocol must prove a secret, or show a certificate."""
    server = settings.bookie_server
    if not server.secret_file and not (server.tls_required and server.tls_client_certificate_required):
        remedy = (
            "bookie_server.secret_file, or bookie_server.tls_required and bookie_server.tls_client_certificate_required"
        )
        _check(server.bind_address, settings, remedy, say)


def _check(address: str, settings: Settings, remedy: str, say: Callable[[str], object]) -> None:
    if is_loopback(address):
        return
    text = f"It listens on {address} and asks nobody who they are: whoever reaches it may read and delete everything"
    if settings.security.production:
        raise CannotStart(f"{text}. Set {remedy}, or listen on 127.0.0.1 with --bind")
    say(f"{_RULE}\nmagnetar: WARNING: {text}.\nSet {remedy}, or use --bind 127.0.0.1.\n{_RULE}\n")


def is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
