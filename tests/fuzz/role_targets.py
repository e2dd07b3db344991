# SPDX-License-Identifier: Apache-2.0
"""Records that roles of a cluster read of each other, bodies of a bookie's HTTP port, and the data source's own files.

Decides.
"""

import json
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from magnetar.admin import bundles as admin_bundles
from magnetar.bookie.http_routes import Asked
from magnetar.bookie.ledger_table import LedgerTable
from magnetar.broker.ownership import assignment, bundles, dynamic_settings, isolation, orders, owner
from magnetar.cli import cluster_plan, worker_plan
from magnetar.client.schema_protobuf import ProtobufNativeSchema
from magnetar.errors import DamagedRecord
from magnetar.ledger import auditor_election, bookie_places, placement, repair_list
from magnetar.managed_ledger.cursor_record import CursorRecord
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.metadata import cluster_identity, etcd_client, etcd_format, json_record
from magnetar.metadata.remote_protocol import decode_path
from magnetar.names import decode_name
from magnetar.wire.bookkeeper import v2
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker
from magnetar.wire.bookkeeper.request_cutter import RequestCutter
from magnetar.wire.proto import ml_formats_pb2 as ml
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.fuzz.target import PIECE_BYTES_MAX, Target, answer_of


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _refusing(decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """For a decoder whose refusal is a ValueError, which its caller expects."""

    def refused(data: bytes) -> object:
        try:
            return decode(data)
        except ValueError as error:
            raise DamagedRecord(str(error)) from error

    return refused


def _of_record(decode: Callable[[Any], object]) -> Callable[[bytes], object]:
    """For what takes a record that was JSON."""
    return lambda data: decode(json_record.decode_json(data))


# --- between roles --------------------------------------------------------------------------------

_RACKS: Final = b'{"g":{"b:1":{"rack":"/eu/r1","hostname":"h"},"b:2":{"rack":null}}}'
_AFFINITY: Final = placement.affinity_metadata(placement.Affinity(("a", "b"), ("c",)))[placement.AFFINITY_KEY]
_POLICIES: Final = (
    b'{"p":{"namespaces":["a/b.*"],"primary":["x"],"secondary":["y"],"auto_failover_policy":'
    b'{"policy_type":"min_available","parameters":{"min_limit":"1","usage_threshold":"80"}}}}'
)
_BOUNDS: Final = b'{"boundaries":["0x00000000","0x80000000","0xffffffff"],"numBundles":2}'
_KV: Final = {
    "key": etcd_format.encoded("/base/a/b"),
    "value": etcd_format.encode_value(b"value", 1, 2),
    "version": "3",
    "create_revision": "4",
    "mod_revision": "5",
    "lease": "0",
}
_CURSOR: Final = ml.ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=6, lastActive=1)
_CURSOR.individualDeletedMessages.add(
    lowerEndpoint=ml.NestedPositionInfo(ledgerId=5, entryId=7),
    upperEndpoint=ml.NestedPositionInfo(ledgerId=5, entryId=9),
)
_CURSOR.batchedEntryDeletionIndexInfo.add(position=ml.NestedPositionInfo(ledgerId=5, entryId=12), deleteSet=[1, -1])
_CURSOR.properties.add(name="#pulsar.internal.index", value=7)
_CURSOR.cursorProperties.add(name="a", value="b")
_CURSOR.cursorProperties.add(name="magnetar.reserved", value="7")
_CURSOR.cursorProperties.add(name="magnetar.deleting", value="7,8")


def _policies(data: bytes) -> None:
    policies = isolation.decode_policies(json_record.decode_json(data))
    isolation.is_isolated("a/bc", policies)
    isolation.allowed_brokers("a/bc", policies, {})


def _cursor(data: bytes) -> None:
    record = CursorRecord.decode(data)
    record.snapshot(LedgerList([]))


def _tombstones(data: bytes) -> None:
    LedgerTable(idle_max=10).load_deleted(data)


def _deleted(*ledger_ids: int) -> bytes:
    table = LedgerTable(idle_max=10)
    for ledger_id in ledger_ids:
        table.delete(ledger_id)
    return table.tombstones()


def _requests(data: bytes) -> None:
    """However a stream of requests is cut, they are the same, adds in runs or alone."""
    whole, parts = RequestCutter(PIECE_BYTES_MAX), RequestCutter(PIECE_BYTES_MAX)
    middle = len(data) // 3
    assert _packets(whole.cut(data)) == _packets([*parts.cut(data[:middle]), *parts.cut(data[middle:])])
    assert (whole.fault is None) == (parts.fault is None)


def _packets(requests: Any) -> list[bytes]:
    found: list[bytes] = []
    for request in requests:
        if isinstance(request, bytes):
            found.append(request)
        else:
            found += [v2.add_front(len(entry), request.master_key)[4:] + entry for entry in request.entries]
    return found


_CHARGE: Final = worker_plan.encode_charge(
    worker_plan.Charge("w", "broker", worker_plan.Ports(1, 2), worker_plan.Ports(3, 4))
).encode()
_PLAN: Final = cluster_plan.encode(
    cluster_plan.Plan("c", "m", (cluster_plan.Member("b", "broker", 1, 2),), {"broker": ("a.conf",)})
).encode()
_PACKERS: Final = tuple(EntryPacker(5, kind, b"secret") for kind in DigestType)


def _packed(data: bytes) -> None:
    for packer in _PACKERS:
        packer.count_intact([data, data], 7)
        answer_of(partial(packer.unpack, data, 7))
        answer_of(partial(packer.unpack_last_confirmed, data))


_PACKED: Final = tuple(bytes(packer.pack(7, 6, 30, (b"body",))) for packer in _PACKERS)
_CONFIRMED: Final = tuple(packer.pack_last_confirmed(6) for packer in _PACKERS)

_BETWEEN: Final = (
    Target("places of bookies", _refusing(bookie_places.decode_places), (_RACKS, b"{}")),
    Target("affinity of a ledger", lambda data: placement.affinity_of({placement.AFFINITY_KEY: data}), (_AFFINITY,)),
    Target("isolation policies", _policies, (_POLICIES,)),
    Target(
        "bounds of bundles",
        _of_record(lambda found: bundles.decode_bounds(found, "a record")),
        (_BOUNDS, b'{"numBundles":4}'),
    ),
    Target(
        "bounds in a request",
        _of_record(lambda found: _asked(lambda: admin_bundles.parsed_bundles(found))),
        (_BOUNDS,),
    ),
    Target("bundle's name", lambda data: bundles.parse_bundle(_text(data)), (b"public/default/0x00000000_0x40000000",)),
    Target(
        "listeners",
        lambda data: owner.parse_listeners(_text(data)),
        (b"internal:pulsar://a:6650,external:pulsar+ssl://[::1]:6651",),
    ),
    Target(
        "addresses to bind", lambda data: owner.parse_bind_addresses(_text(data)), (b"internal:pulsar://0.0.0.0:6652",)
    ),
    Target("assignments", assignment._decoded, (b'{"a":["b"]}',)),
    Target("dynamic settings", dynamic_settings._decoded, (b'{"a":"b"}',)),
    Target("orders", orders._decoded, (b'{"action":"unload"}',)),
    Target("JSON record", json_record.decode_json, (b'{"a":1}', b"")),
    Target("cluster's identity", cluster_identity._decode, (b'{"version":1,"name":"c"}',)),
    Target(
        "etcd's record",
        _refusing(lambda data: etcd_format.decode_held({**_KV, "value": _text(data)}, "a path")),
        (str(_KV["value"]).encode(),),
    ),
    Target(
        "etcd's answer",
        lambda data: etcd_client._result(etcd_client._read(data, "watch")),
        (json.dumps({"result": {"events": [{"kv": _KV}]}}).encode(), b'{"error":{"message":"no"}}'),
    ),
    Target("etcd's error", etcd_format.error_text, (b'{"message":"no","code":5}',)),
    Target("path of a request", decode_path, (b"\x00\x00\x00\x02/a",)),
    Target("mark of a ledger", lambda data: repair_list.decode_mark(5, data, 1), (b'replica: "b:1"\nctime: 7\n',)),
    Target("vote for an auditor", lambda data: auditor_election.decode_vote(data, "V_1"), (b'bookieId: "b:1"\n',)),
    Target("cursor's whole record", _cursor, (_CURSOR.SerializeToString(),)),
    Target("deleted ledgers", _tombstones, (_deleted(1, 2, 500, 1 << 40), _deleted())),
    Target(
        "requests for a bookie",
        _requests,
        (v2.add_front(60, b"k" * 20) + bytes(60) + v2.encode_read(5, 6), (v2.add_front(60, b"k" * 20) + bytes(60)) * 3),
    ),
    Target("packed entry's digest", _packed, (*_PACKED, *_CONFIRMED)),
    Target("body for a bookie", _refusing(lambda data: Asked({}, data).document()), (b'{"readOnly":true}',)),
    Target("escaped name", lambda data: decode_name(_text(data)), (b"a%2Fb",)),
    Target("charge of a worker", lambda data: worker_plan.decode_charge(_text(data)), (_CHARGE,)),
    Target("ports of workers", worker_plan.decode_ports, (worker_plan.encode_ports([worker_plan.Ports(1, 2)]),)),
    Target(
        "plan of a cluster",
        lambda data: cluster_plan.decode(_text(data), "a file"),
        (_PLAN,),
    ),
)


def _asked(read: Callable[[], object]) -> object:
    """An admin path's refusal is an answer, not one of our errors."""
    from magnetar.admin.answers import AdminRefused

    try:
        return read()
    except AdminRefused as error:
        raise DamagedRecord(str(error)) from error


# --- the data source ------------------------------------------------------------------------------


def _spark_targets() -> tuple[Target, ...]:
    from magnetar.spark.archive.record import ArchivedFile, ArchiveRecord
    from magnetar.spark.avro_types import spark_type_of
    from magnetar.spark.manifest import Manifest
    from magnetar.spark.offsets import Offset, Place, offsets_from_json
    from magnetar.spark.protobuf_types import _descriptor

    manifest = Manifest(3, 4, False, (), {}, {"t": 7}, "q")
    archived = ArchiveRecord(
        1, "t", {"t": Offset(3, None)}, {"t": Offset(9, Place(5, 6))}, (ArchivedFile("s", "p", 3),), {}
    )
    avro = b'{"type":"record","name":"R","fields":[{"name":"a","type":["null",{"type":"array","items":"long"}]}]}'
    return (
        Target(
            "Spark's offsets",
            _of_record(offsets_from_json),
            (b'{"t":{"index":7,"after":"5:6","from":{"index":1}},"u":"5:6:1","v":9}',),
        ),
        Target("sink's manifest", Manifest.from_bytes, (manifest.to_bytes(),)),
        Target("archive's record", lambda data: ArchiveRecord.decode(data, "a file"), (archived.encode(),)),
        Target("columns of an Avro definition", spark_type_of, (avro,)),
        Target(
            "columns of a protobuf definition",
            _descriptor,
            (ProtobufNativeSchema(pb.MessageIdData).info.definition,),
        ),
    )


ROLES: Final = (*_BETWEEN, *(_spark_targets() if find_spec("pyspark") is not None else ()))
