# SPDX-License-Identifier: Apache-2.0
"""The generated modules are what protoc makes of proto/ now, and carry the names that other implementations expect."""

from pathlib import Path

import pytest

from magnetar.wire.proto import (
    bookkeeper_pb2,
    db_ledger_storage_pb2,
    delayed_index_metadata_pb2,
    delayed_index_segment_pb2,
    ledger_formats_pb2,
    ml_formats_pb2,
    pending_ack_pb2,
    pulsar_api_pb2,
    pulsar_markers_pb2,
    schema_registry_pb2,
    schema_storage_pb2,
    transaction_metadata_pb2,
)
from tools import build_proto

PACKAGES = {
    bookkeeper_pb2: "",
    db_ledger_storage_pb2: "",
    delayed_index_metadata_pb2: "pulsar.delay",
    delayed_index_segment_pb2: "pulsar.delay",
    ledger_formats_pb2: "",
    ml_formats_pb2: "",
    pending_ack_pb2: "pulsar.proto.pendingack",
    pulsar_api_pb2: "pulsar.proto",
    pulsar_markers_pb2: "pulsar.proto",
    schema_registry_pb2: "pulsar.schema",
    schema_storage_pb2: "pulsar.schema",
    transaction_metadata_pb2: "pulsar.proto",
}


def test_committed_modules_are_up_to_date() -> None:
    assert build_proto.stale() == []


def test_a_stale_module_is_noticed(tmp_path: Path) -> None:
    fresh, committed = tmp_path / "fresh", tmp_path / "committed"
    fresh.mkdir()
    committed.mkdir()
    (fresh / "a_pb2.py").write_text("new")
    (committed / "a_pb2.py").write_text("old")
    (committed / "gone_pb2.pyi").write_text("")
    assert build_proto.differences(fresh, committed) == ["a_pb2.py", "gone_pb2.pyi"]


@pytest.mark.parametrize(("module", "package"), PACKAGES.items(), ids=lambda value: getattr(value, "__name__", value))
def test_packages_are_those_of_the_other_implementations(module: object, package: str) -> None:
    assert module.DESCRIPTOR.package == package  # type: ignore[attr-defined]


def test_every_command_type_has_the_field_of_the_same_number() -> None:
    base = pulsar_api_pb2.BaseCommand.DESCRIPTOR
    assert {value.number for value in base.enum_types_by_name["Type"].values} == {
        field.number for field in base.fields if field.name != "type"
    }
