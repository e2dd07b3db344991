# SPDX-License-Identifier: Apache-2.0
"""A broken promise: which, in one sentence, with the operations that show it."""

from dataclasses import dataclass

from tests.simulation.world.history import Operation

_EVIDENCE_MAX = 12
_LINE_MAX = 300


def shorten(text: str) -> str:
    """Both ends of a long line: payloads are long, and what matters stands before and after them."""
    return text if len(text) <= _LINE_MAX else f"{text[: _LINE_MAX // 2]} … {text[-_LINE_MAX // 2 :]}"


@dataclass(frozen=True, slots=True)
class Violation:
    promise: str
    sentence: str
    evidence: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.promise}: {shorten(self.sentence)}"]
        lines += [f"    {shorten(str(operation))}" for operation in self.evidence[:_EVIDENCE_MAX]]
        return "\n".join(lines)
