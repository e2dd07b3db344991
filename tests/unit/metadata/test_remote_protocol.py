# SPDX-License-Identifier: Apache-2.0
"""The metadata server's protocol: any split of the bytes gives the same frames, and garbage is a named fault."""

import contextlib
import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar import errors
from magnetar.errors import BadFrame, MetadataError, NotSupported, PeerFault
from magnetar.metadata import remote_protocol as protocol
from magnetar.metadata.remote_protocol import Frame, FrameCutter, Hello, Kind, Put, Welcome
from magnetar.metadata.store import Change, ChangeKind, Record

_paths = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=50).map(lambda name: f"/{name}")
_numbers = st.integers(0, 2**63)
_frames = st.builds(Frame, st.sampled_from(Kind), _numbers, st.binary(max_size=100))


@settings(max_examples=100, deadline=None)
@given(st.lists(_frames, max_size=6), st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_any_split_gives_the_same_frames(frames: list[Frame], sizes: list[int]) -> None:
    stream = b"".join(protocol.encode_frame(*frame) for frame in frames)
    cutter, found, at = FrameCutter(1000), list[Frame](), 0
    while at < len(stream):
        size = sizes[at % len(sizes)]
        found.extend(cutter.cut(stream[at : at + size]))
        at += size
    assert found == frames


@pytest.mark.parametrize("length", [0, 8, 1001, 2**31, 2**32 - 1])
def test_an_impossible_length_is_refused_before_anything_is_kept(length: int) -> None:
    with pytest.raises(BadFrame, match=str(length)):
        list(FrameCutter(1000).cut(length.to_bytes(4, "big")))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(BadFrame, match="kind 200"):
        list(FrameCutter(1000).cut((9).to_bytes(4, "big") + bytes((200,)) + bytes(8)))


@settings(max_examples=100, deadline=None)
@given(_paths, st.binary(max_size=50), st.none() | st.integers(-1, 2**31), st.booleans(), st.booleans())
def test_requests_and_answers_come_back_as_they_were(
    path: str, value: bytes, version: int | None, ephemeral: bool, sequential: bool
) -> None:
    put = Put(path, value, version, ephemeral, sequential)
    assert protocol.decode_put(protocol.encode_put(put)) == put
    assert protocol.decode_delete(protocol.encode_delete(path, version)) == (path, version)
    assert protocol.decode_stored(protocol.encode_stored(path, 7)) == (path, 7)
    record = Record(value, 3, ephemeral, 5, 6)
    assert protocol.decode_record(protocol.encode_record(record)) == record
    assert protocol.decode_record(protocol.encode_record(None)) is None
    changes = [Change(kind, path) for kind in ChangeKind]
    assert protocol.decode_changes(protocol.encode_changes(changes)) == changes
    for names in ([], [""], [path[1:]], ["a", path[1:], "b"]):
        assert protocol.decode_names(protocol.encode_names(names)) == names


def test_greetings_name_store_and_session_and_other_versions_are_refused() -> None:
    hello = Hello(1, 2, 3)
    encoded = protocol.encode_hello(hello)
    assert protocol.decode_hello(encoded) == hello
    assert protocol.decode_welcome(protocol.encode_welcome(Welcome(1, 2, 3))) == Welcome(1, 2, 3)
    with pytest.raises(NotSupported, match="version 9"):
        protocol.decode_hello(encoded[:4] + b"\x09" + encoded[5:])
    with pytest.raises(BadFrame):
        protocol.decode_hello(b"GET / HTTP/1.1")
    with pytest.raises(BadFrame):
        protocol.decode_hello(encoded[:-1])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_garbage_is_a_peers_fault_or_a_value(garbage: bytes) -> None:
    for decode in (
        protocol.decode_put,
        protocol.decode_delete,
        protocol.decode_stored,
        protocol.decode_record,
        protocol.decode_names,
        protocol.decode_changes,
        protocol.decode_welcome,
        protocol.decode_refusal,
        protocol.decode_path,
        lambda body: list(FrameCutter(1000).cut(body)),
    ):
        with contextlib.suppress(PeerFault):
            decode(garbage)


def test_every_metadata_error_keeps_its_class_on_the_way() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, MetadataError)]
    # Made by clients only: a server never sends them.
    kinds = [kind for kind in kinds if kind not in (errors.OutcomeUnknown, errors.StoreGivenUp, errors.LockHeld)]
    for kind in (*kinds, errors.StorageFailed, errors.TooManyRequests):
        error = protocol.decode_refusal(protocol.encode_refusal(kind("why")))
        assert type(error) is kind
        assert str(error) == "why"
