# SPDX-License-Identifier: Apache-2.0
"""Cookies: who a bookie is and which directories belong to it, as text on each of its disks and in the metadata store.

    layout version "\\n", then
    3: bookie, journal directories, ledger directories, each a line — 4 and 5: CookieFormat as protobuf text

A list of directories is its count and the paths, between tabs; journal directories are joined with commas.
Decides.
"""

from dataclasses import dataclass
from typing import Final

from google.protobuf import text_format

from magnetar.errors import DamagedRecord
from magnetar.wire.proto.ledger_formats_pb2 import CookieFormat
from magnetar.wire.required import missing

LAYOUT_VERSION: Final = 5
LAYOUT_VERSION_MIN: Final = 3


@dataclass(frozen=True, slots=True)
class Cookie:
    """A bookie and its directories."""

    bookie_id: str
    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    instance_id: str | None = None
    index_directories: tuple[str, ...] | None = None
    """None: the ledger directories."""


def encode(cookie: Cookie) -> bytes:
    """Always in the latest layout, as BookKeeper does."""
    text = CookieFormat(
        bookieHost=cookie.bookie_id,
        journalDir=",".join(cookie.journal_directories),
        ledgerDirs=_encode_list(cookie.ledger_directories),
        instanceId=cookie.instance_id,
        indexDirs=None if cookie.index_directories is None else _encode_list(cookie.index_directories),
    )
    return f"{LAYOUT_VERSION}\n{text_format.MessageToString(text, as_utf8=False)}".encode()


def decode(data: bytes) -> Cookie:
    """Raises DamagedRecord for what is no cookie, or is older than anyone still runs."""
    try:
        version, _, body = data.decode().partition("\n")
        layout = int(version.strip())
    except ValueError as error:
        raise DamagedRecord(f"A cookie begins with {data[:32]!r}, not with its layout version.") from error
    if layout < LAYOUT_VERSION_MIN:
        raise DamagedRecord(f"A cookie has layout version {layout}; {LAYOUT_VERSION_MIN} is the oldest known here.")
    return _decode_lines(body) if layout == LAYOUT_VERSION_MIN else _decode_text(body)


def _decode_lines(body: str) -> Cookie:
    lines = body.splitlines()
    if len(lines) < 3:
        raise DamagedRecord(f"A cookie of layout 3 has {len(lines)} lines after its version instead of three.")
    return Cookie(lines[0], tuple(lines[1].split(",")), _decode_list(lines[2]))


def _decode_text(body: str) -> Cookie:
    try:
        text = text_format.Parse(body, CookieFormat(), allow_unknown_field=True)
    except (text_format.ParseError, RecursionError) as error:
        raise DamagedRecord(f"A cookie cannot be parsed as text: {error}") from error
    if lacking := missing(text):
        raise DamagedRecord(f"A cookie lacks {lacking}.")
    return Cookie(
        bookie_id=text.bookieHost,
        journal_directories=tuple(text.journalDir.split(",")),
        ledger_directories=_decode_list(text.ledgerDirs),
        instance_id=text.instanceId or None,
        index_directories=_decode_list(text.indexDirs) if text.indexDirs else None,
    )


def _encode_list(directories: tuple[str, ...]) -> str:
    return "\t".join((str(len(directories)), *directories))


def _decode_list(text: str) -> tuple[str, ...]:
    """Paths after their count, which BookKeeper writes and never reads; neither do we."""
    return tuple(text.split("\t")[1:])
