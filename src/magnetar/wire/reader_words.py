# SPDX-License-Identifier: Apache-2.0
"""Words that our own readers put into the metadata of SUBSCRIBE, and what they ask of a broker by them.

Other brokers pass over words that they do not know.
Decides.
"""

from collections.abc import Mapping
from typing import Final

_SHOWS_MARKERS: Final = "magnetar.shows-markers"

SHOWS_MARKERS: Final = {_SHOWS_MARKERS: "true"}
"""Entries that no consumer sees come as well: markers as they are, messages of aborted transactions as markers without
a payload. Whoever checks that nothing is missing knows by them why a number is left out."""


def shows_markers(metadata: Mapping[str, str]) -> bool:
    return metadata.get(_SHOWS_MARKERS) == "true"
