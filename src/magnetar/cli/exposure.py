# SPDX-License-Identifier: Apache-2.0
"""Whether a broker listens to a network and asks nobody who they are; said so that it cannot be overlooked.

Decides.
"""

from collections.abc import Callable
from ipaddress import ip_address

from magnetar.config.load import Settings
from magnetar.errors import CannotStart

_RULE = "!" * 78


def check_exposure(settings: Settings, say: Callable[[str], object]) -> None:
    """A warning in a frame; with --production, CannotStart."""
    address = settings.broker.bind_address
    if settings.security.authentication_enabled or is_loopback(address):
        return
    text = f"It listens on {address} and asks nobody who they are: whoever reaches it may read and delete everything"
    if settings.security.production:
        raise CannotStart(f"{text}. Set authenticationEnabled=true, or listen on 127.0.0.1 with --bind")
    say(f"{_RULE}\nmagnetar: WARNING: {text}.\nSet authenticationEnabled=true, or use --bind 127.0.0.1.\n{_RULE}\n")


def is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
