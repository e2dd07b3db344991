# SPDX-License-Identifier: Apache-2.0
"""Who may add to a ledger, and that its state survives being stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.ledger_state import LedgerState, decode_state
from magnetar.errors import Damaged

OK, UNAUTHORIZED, FENCED = 0, 102, 104


def test_a_fence_stops_ordinary_adds_and_lets_recovery_through() -> None:
    state = LedgerState(1, b"key")
    assert state.refusal(b"key", recovery=False) == OK
    assert state.refusal(b"other", recovery=False) == UNAUTHORIZED
    assert state.fence()
    assert not state.fence()
    assert state.refusal(b"key", recovery=False) == FENCED
    assert state.refusal(b"key", recovery=True) == OK
    assert state.refusal(b"other", recovery=True) == UNAUTHORIZED
    assert not state.open_to_adds


def test_limbo_fences_and_outlives_nothing_but_repair() -> None:
    state = LedgerState(1, b"key")
    state.enter_limbo()
    assert state.fenced
    assert state.refusal(b"key", recovery=False) == FENCED
    assert state.refusal(b"key", recovery=True) == OK
    state.leave_limbo(b"another")
    assert not state.limbo
    assert state.fenced
    assert state.fits_key(b"key"), "what was known is believed"
    forgetful = LedgerState(2, b"")
    forgetful.enter_limbo()
    forgetful.leave_limbo(b"key")
    assert forgetful.refusal(b"other", recovery=True) == UNAUTHORIZED
    assert forgetful.refusal(b"key", recovery=True) == OK


def test_a_ledger_whose_key_was_lost_takes_the_first_it_is_shown() -> None:
    state = LedgerState(1, b"")
    assert not state.accept_key(b"key"), "an empty key is a key, unless it was lost"
    state.enter_limbo()
    assert state.accept_key(b"key")
    assert not state.accept_key(b"other")


def test_the_explicit_last_confirmed_only_rises() -> None:
    state = LedgerState(1, b"key")
    assert state.raise_explicit(5, b"five")
    assert not state.raise_explicit(5, b"again")
    assert not state.raise_explicit(4, b"four")
    assert (state.explicit_lac, state.explicit_body) == (5, b"five")


@given(st.binary(max_size=30), st.booleans(), st.booleans(), st.integers(-1, 2**62), st.binary(max_size=40))
def test_a_state_comes_back(key: bytes, fenced: bool, limbo: bool, lac: int, body: bytes) -> None:
    state = LedgerState(9, key)
    state.raise_explicit(lac, body)
    if fenced:
        state.fence()
    if limbo:
        state.enter_limbo()
    loaded = decode_state(9, state.encode())
    assert loaded.master_key == key
    assert (loaded.fenced, loaded.limbo) == (fenced or limbo, limbo)
    assert loaded.fence_durable == loaded.fenced, "what the index has is durable"
    assert (loaded.explicit_lac, loaded.explicit_body) == (state.explicit_lac, state.explicit_body)
    assert loaded.open_to_adds == state.open_to_adds


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x09" + bytes(20), b"\x01\x00" + bytes(8) + b"\xff\xff"])
def test_a_state_that_cannot_be_read_is_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode_state(9, data)
