# SPDX-License-Identifier: Apache-2.0
"""What Spark says when something is wrong, in one sentence.

Spark's errors carry plans and stack traces of two languages; a person needs the line that says why.
Decides.
"""

import re
from typing import Final

from magnetar.errors import MagnetarError, Refused

SENTENCE_CHARACTERS_MAX: Final = 500
_OURS: Final = re.compile(r"^(?:\S+: )?(?:magnetar\.[\w.]*?(\w+)): (.+)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception)): (.+)$", re.MULTILINE)
_CODE: Final = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+;?")


class QueryFailed(Refused):
    """Spark could not run a query; the text says why."""


def sentence_of(error: BaseException) -> str:
    """The reason: that of Magnetar or of Python code in a worker if there is one, else the first line of Spark's."""
    if isinstance(error, MagnetarError):
        return str(error)
    text = str(error).strip()
    for pattern in (_OURS, _PYTHON):
        found = pattern.findall(text)
        if found:
            name, said = found[-1]
            return (said if pattern is _OURS else f"{name}: {said}")[:SENTENCE_CHARACTERS_MAX]
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _STATE.sub("", _CODE.sub("", first)).strip(" ;")[:SENTENCE_CHARACTERS_MAX]


def failed(error: BaseException) -> MagnetarError:
    return error if isinstance(error, MagnetarError) else QueryFailed(sentence_of(error))
