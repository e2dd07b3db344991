# SPDX-License-Identifier: Apache-2.0
"""The life of a producer or consumer, and which step may follow which.

    connecting ⇄ ready → closing → closed        failed, terminated and fenced are final, as closed is

Decides.
"""

from enum import Enum
from typing import Final


class State(Enum):
    CONNECTING = "connecting"
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"
    TERMINATED = "terminated"
    FENCED = "fenced"


_ENDS: Final = frozenset({State.CLOSED, State.FAILED, State.TERMINATED, State.FENCED})

STEPS: Final[dict[State, frozenset[State]]] = {
    State.CONNECTING: frozenset({State.READY, State.CLOSING, *_ENDS}),
    State.READY: frozenset({State.CONNECTING, State.CLOSING, *_ENDS}),
    State.CLOSING: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
    State.FAILED: frozenset({State.CLOSED}),
    State.TERMINATED: frozenset(),
    State.FENCED: frozenset(),
}


class IllegalStep(AssertionError):
    """A step that the table does not have: a bug of the client."""


def step(present: State, following: State) -> State:
    """The following state. A step to where one is changes nothing."""
    if present is following:
        return present
    if following not in STEPS[present]:
        raise IllegalStep(f"{present.value} cannot become {following.value}")
    return following


def is_final(state: State) -> bool:
    return state in _ENDS


def is_live(state: State) -> bool:
    return state in (State.CONNECTING, State.READY)
