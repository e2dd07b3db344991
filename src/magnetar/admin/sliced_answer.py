# SPDX-License-Identifier: Apache-2.0
"""An answer that is too large to be written in one go: its JSON is made in slices, as fast as the client reads.

Carries.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.responses import StreamingResponse

from magnetar.admin.sliced_json import json_slices
from magnetar.admin.slices import Turns

# Well below a millisecond's work.
SLICE_ITEMS_MAX: Final = 500


class SlicedAnswer(StreamingResponse):
    def __init__(self, value: Any) -> None:
        super().__init__(_texts(value), media_type="application/json")


async def _texts(value: Any) -> AsyncIterator[str]:
    turns = Turns()
    for text in json_slices(value, SLICE_ITEMS_MAX):
        yield text
        await turns.others()
