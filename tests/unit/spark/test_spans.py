# SPDX-License-Identifier: Apache-2.0
"""Parts of buffers as a column, and the compiled twins of that and of layouts: the same for everything."""

import os
from importlib import import_module
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.spark import spans
from magnetar.spark.batch_layout import lay_out_plainly
from magnetar.wire import compiled, message
from tests.unit.spark.test_bulk_rows import batch_entry, batches

gather_plainly, _ = spans.PLAIN


@pytest.fixture(scope="module")
def twins() -> ModuleType:
    if not compiled.is_built(spans.MODULE):
        sentence = "the compiled row loops are not built: `make compile` builds them"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)
    return import_module(spans.MODULE)


@st.composite
def pieces(draw: st.DrawFn) -> list[spans.Piece]:
    found = []
    for data in draw(st.lists(st.binary(max_size=30), max_size=4)):
        cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
        bounds = cuts[: len(cuts) // 2 * 2]
        found.append((data, np.array(bounds, np.int64).reshape(-1, 2)))
    return found


def parts_of(found: list[spans.Piece]) -> list[bytes]:
    return [data[begin:end] for data, bounds in found for begin, end in bounds.tolist()]


@given(pieces())
def test_spans_become_a_column_in_their_order(found: list[spans.Piece]) -> None:
    made = spans.column(found)
    made.validate(full=True)
    assert made.to_pylist() == parts_of(found)


@given(pieces(), st.data())
def test_a_column_may_have_nulls(found: list[spans.Piece], data: st.DataObject) -> None:
    parts = parts_of(found)
    nulls = data.draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
    made = spans.column(found, np.array(nulls, bool))
    made.validate(full=True)
    assert made.to_pylist() == [None if is_null else part for part, is_null in zip(parts, nulls, strict=True)]


@pytest.mark.parametrize("bounds", [(-1, 2), (0, 4), (2, 1)])
def test_a_span_outside_of_its_buffer_is_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="outside"):
        spans.column([(b"abc", np.array([bounds], np.int64))])


@given(pieces())
def test_the_compiled_gathering_gives_the_same(twins: ModuleType, found: list[spans.Piece]) -> None:
    plain, compiled_ones = gather_plainly(found, pa.allocate_buffer), twins.gather(found, pa.allocate_buffer)
    assert [bytes(one) for one in plain] == [bytes(one) for one in compiled_ones]


@pytest.mark.parametrize("bounds", [(-1, 2), (0, 4), (2, 1)])
def test_the_compiled_gathering_refuses_the_same(twins: ModuleType, bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="outside"):
        twins.gather([(b"abc", np.array([bounds], np.int64))], pa.allocate_buffer)


@given(batches(), st.data())
@settings(max_examples=200, deadline=None)
def test_the_compiled_layout_is_the_same_for_good_and_damaged_batches(
    twins: ModuleType, messages: list[tuple[dict[str, object], bytes]], data: st.DataObject
) -> None:
    payload = bytearray(batch_entry(messages).payload)
    for _ in range(data.draw(st.integers(0, 2))):
        if payload:
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    whole = bytes(payload[: data.draw(st.sampled_from([len(payload), len(payload), len(payload) // 2]))])
    count = len(messages) + data.draw(st.sampled_from([0, 0, 0, 1, -1]))
    front = data.draw(st.sampled_from([0, 3]))
    plain, found = (
        lay_out_plainly(b"abc"[:front] + whole, count, front),
        twins.lay_out(b"abc"[:front] + whole, count, front),
    )
    if plain is None or found is None:
        assert plain is found
        return
    rows, pairs = found
    assert np.frombuffer(rows, np.int64).tolist() == plain.rows.reshape(-1).tolist()
    assert np.frombuffer(pairs, np.int64).tolist() == plain.pairs.reshape(-1).tolist()


@given(st.binary(max_size=40), st.binary(max_size=4), st.data())
def test_the_compiled_checksum_says_the_same(
    twins: ModuleType, payload: bytes, front: bytes, data: st.DataObject
) -> None:
    body = front + b"".join(message.join(b"metadata", payload))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(body) - 1))
        body = body[:at] + bytes([body[at] ^ data.draw(st.integers(1, 255))]) + body[at + 1 :]
    body = body[: data.draw(st.sampled_from([len(body), len(body), len(body) // 2]))]
    start = min(len(front), len(body))
    assert twins.is_intact(body, start) == message.is_intact(body, start)
