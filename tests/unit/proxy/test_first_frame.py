# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadCommand
from magnetar.proxy.first_frame import FirstFrame
from magnetar.wire import frame


@pytest.mark.feature("F-PXY-02")
@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=40), st.binary(max_size=40), st.lists(st.integers(1, 20), max_size=8))
def test_however_the_stream_is_cut_the_rest_is_what_came_behind(command: bytes, rest: bytes, cuts: list[int]) -> None:
    stream = frame.join(command) + rest
    first = FirstFrame(1000)
    found = []
    for size in [*cuts, len(stream)]:
        chunk, stream = stream[:size], stream[size:]
        taken = first.feed(chunk)
        if taken is not None:
            found.append(taken)
    assert found == [command]
    assert first.rest() == rest
    assert first.rest() == b""


def test_a_frame_too_large_is_refused_before_it_is_held() -> None:
    with pytest.raises(BadCommand, match="total size 1001"):
        FirstFrame(1000).feed((1001).to_bytes(4, "big") + (5).to_bytes(4, "big"))
    with pytest.raises(BadCommand):
        FirstFrame(1000).feed((8).to_bytes(4, "big") + (5).to_bytes(4, "big"))
    with pytest.raises(BadCommand):
        FirstFrame(1000).feed(b"GET / HTTP/1.1\r\n")


def test_what_comes_during_a_handshake_is_bounded() -> None:
    first = FirstFrame(20)
    assert first.feed(frame.join(b"a")) == b"a"
    assert first.feed(b"x" * 20) is None
    with pytest.raises(BadCommand, match="More than 20 bytes"):
        first.feed(b"x")


def test_a_handshake_may_have_more_frames() -> None:
    first = FirstFrame(100)
    assert first.feed(frame.join(b"a") + frame.join(b"b") + b"rest") == b"a"
    second = first.following()
    assert second.feed(b"") == b"b"
    assert second.rest() == b"rest"
