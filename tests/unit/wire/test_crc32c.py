# SPDX-License-Identifier: Apache-2.0
"""CRC-32C: known sums, and the compiled one beside the library's for every kind of buffer."""

from collections.abc import Callable
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire import compiled, crc32c

Extend = Callable[[int, bytes | bytearray | memoryview], int]


@pytest.fixture(params=["plain", "compiled"])
def extend(request: pytest.FixtureRequest) -> Extend:
    if request.param == "plain":
        return crc32c.PLAIN
    if not compiled.is_built():
        pytest.skip("the compiled loops are not built: `make compile` builds them")
    found: Extend = import_module(compiled.MODULE).extend
    return found


def test_known_sums(extend: Extend) -> None:
    assert extend(0, b"") == 0
    assert extend(0, b"123456789") == 0xE3069283
    assert extend(0, bytes(32)) == 0x8A9136AA
    assert extend(extend(0, b"1234"), b"56789") == 0xE3069283


@given(st.integers(0, 2**32 - 1), st.binary(max_size=30), st.integers(0, 9_000))
def test_the_compiled_one_is_the_librarys(checksum: int, piece: bytes, times: int) -> None:
    if not compiled.is_built():
        pytest.skip("the compiled loops are not built: `make compile` builds them")
    extend = import_module(compiled.MODULE).extend
    data = (piece * times)[:100_000]
    expected = crc32c.PLAIN(checksum, data)
    assert extend(checksum, data) == expected
    assert extend(checksum, bytearray(data)) == expected
    assert extend(checksum, memoryview(b"!" + data)[1:]) == expected


def test_what_is_no_stretch_of_bytes_is_refused() -> None:
    if not compiled.is_built():
        pytest.skip("the compiled loops are not built: `make compile` builds them")
    extend = import_module(compiled.MODULE).extend
    for wrong in ("text", None, 7, memoryview(b"abcdef")[::2]):
        with pytest.raises((TypeError, BufferError)):
            extend(0, wrong)
