# SPDX-License-Identifier: Apache-2.0
"""How bookies are listed in the metadata store: the places, and what a listing says, as BookKeeper has them.

Bookies write here and ledger clients read; the two know each other by these records and by packets only.
Decides.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from magnetar.wire.proto.ledger_formats_pb2 import BookieServiceInfoFormat

ROOT: Final = "/ledgers"
INSTANCE_ID: Final = f"{ROOT}/INSTANCEID"
AVAILABLE: Final = f"{ROOT}/available"
READONLY_NAME: Final = "readonly"
READONLY: Final = f"{AVAILABLE}/{READONLY_NAME}"
COOKIES: Final = f"{ROOT}/cookies"
# How often each bookie has started. Ours alone; BookKeeper's own tree stays as BookKeeper knows it.
BOOTS: Final = "/magnetar/bookie-starts"

# What BookKeeper calls the endpoints of a bookie and what they speak.
BOOKIE_ENDPOINT: Final = "bookie"
BOOKIE_PROTOCOL: Final = "bookie-rpc"
HTTP_ENDPOINT: Final = "httpserver"
HTTP_PROTOCOL: Final = "http"
# The format level that a bookie of ours can read; Apache's tools show properties that they do not know.
FORMAT_LEVEL_PROPERTY: Final = "magnetar.formatLevel"


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    protocol: str


def encode_listing(endpoints: Sequence[Endpoint], properties: Mapping[str, str]) -> bytes:
    """What a bookie's record under AVAILABLE or READONLY holds."""
    info = BookieServiceInfoFormat()
    for key, value in properties.items():
        info.properties.add(key=key, value=value)
    for endpoint in endpoints:
        info.endpoints.add(id=endpoint.name, host=endpoint.host, port=endpoint.port, protocol=endpoint.protocol)
    return info.SerializeToString()


def decode_listing(value: bytes) -> list[Endpoint]:
    """The endpoints in a record; none when it says nothing, as the records of old bookies do."""
    try:
        info = BookieServiceInfoFormat.FromString(value)
    except DecodeError:
        return []
    return [Endpoint(each.id, each.host, each.port, each.protocol) for each in info.endpoints]


def listed_property(value: bytes, key: str) -> str:
    """What a record says under a key; empty when it says nothing."""
    try:
        info = BookieServiceInfoFormat.FromString(value)
    except DecodeError:
        return ""
    return next((each.value for each in info.properties if each.key == key), "")
