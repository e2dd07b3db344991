# SPDX-License-Identifier: Apache-2.0
"""Records and options that nest without end are refused, as others that cannot be read are."""

from collections.abc import Callable

import pytest

from magnetar.errors import MagnetarError
from magnetar.spark.archive.record import ArchiveRecord
from magnetar.spark.avro_types import spark_type_of
from magnetar.spark.manifest import Manifest
from magnetar.spark.offsets import offsets_from_json
from magnetar.spark.options import _bound, _time
from magnetar.spark.pipelines.progress import _offsets
from magnetar.spark.protobuf_types import _descriptor
from magnetar.spark.source import given_schema

DEEP = b"[" * 50_000


@pytest.mark.parametrize(
    "read",
    [
        lambda: ArchiveRecord.decode(DEEP, "a file"),
        lambda: Manifest.from_bytes(DEEP),
        lambda: Manifest.from_bytes(b'{"format":1,"serial":1,"batch":1,"state":"done","attempts":[],"targets":[]}'),
        lambda: offsets_from_json({"t": _nested_offset()}),
        lambda: _bound("startingOffsets", DEEP.decode()),
        lambda: _time("startingTimestamp", '{"a":' * 50_000),
        lambda: spark_type_of(DEEP),
        lambda: spark_type_of(b"7"),
        lambda: _descriptor(DEEP),
        lambda: given_schema("avro", DEEP.decode()),
    ],
)
def test_text_that_nests_too_deeply_is_refused(read: Callable[[], object]) -> None:
    with pytest.raises(MagnetarError):
        read()


def test_offsets_of_others_are_left_out_however_they_nest() -> None:
    assert _offsets(DEEP.decode()) == {}


def _nested_offset() -> object:
    found: dict[str, object] = {"index": 1}
    for _ in range(2_000):
        found = {"index": 1, "from": found}
    return found
