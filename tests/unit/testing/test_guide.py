# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/guides/testing.md, run as they stand there."""

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from magnetar.testing import ThreadedPulsar

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def name_of(example: str) -> str:
    found = re.search(r"def (test_\w+)", example)
    assert found is not None, "an example of the guide is a test"
    return found[1]


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_the_guide_is_true(example: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(example, str(GUIDE), "exec"), names)
    test = names[name_of(example)]
    if inspect.iscoroutinefunction(test):
        asyncio.run(test())
        return
    (wanted,) = inspect.signature(test).parameters
    marks = {mark.name: mark.kwargs for mark in getattr(test, "pytestmark", [])}
    with ThreadedPulsar(**marks.get("pulsar", {})) as pulsar:
        test(pulsar if wanted == "pulsar" else pulsar.service_url)
