# SPDX-License-Identifier: Apache-2.0
"""Options are understood, wrong ones are named, and secrets are refused where they would be seen."""

import pytest

from magnetar.errors import BadSetting
from magnetar.spark.offsets import BEFORE_ALL, Offset
from magnetar.spark.options import sink_options, source_options

URL = {"service.url": "pulsar://localhost:6650"}
T = "persistent://public/default/t"


def test_names_are_not_case_sensitive_and_units_are_understood() -> None:
    made = source_options(
        {**URL, "Topic": "t", "MAXBYTESPERTRIGGER": "10m", "maxTriggerDelay": "30s", "admin.url": "http://localhost"},
        streaming=True,
    )
    assert made.topics.names == (T,)
    assert made.bytes_per_trigger_max == 10 << 20
    assert made.trigger_delay_max_ms == 30_000
    assert made.start == "latest"
    assert source_options({**URL, "topic": "t"}, streaming=False).start == "earliest"


def test_offsets_are_given_by_topic() -> None:
    made = source_options({**URL, "topic": "t", "startingOffsets": '{"t": {"index": 5}}'}, streaming=False)
    assert made.start == {T: Offset(5, None)}
    made = source_options({**URL, "topic": "t", "startingOffsets": '{"t": "earliest"}'}, streaming=False)
    assert made.start == {T: Offset(None, BEFORE_ALL)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "t"}, "service.url"),
        ({**URL}, "exactly one of"),
        ({**URL, "topic": "t", "topics": "a,b"}, "exactly one of"),
        ({**URL, "topic": "t", "maxMessagesPerTriger": "5"}, "maxmessagespertriger"),
        ({**URL, "topic": "t", "maxMessagesPerTrigger": "many"}, "maxMessagesPerTrigger"),
        ({**URL, "topic": "t", "metadata": "some"}, "none, basic, all"),
        ({**URL, "topic": "t", "startingOffsets": "[]"}, "startingOffsets"),
        ({**URL, "topic": "t", "token": "s3cret"}, "tokenFile"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(BadSetting, match=told) as refused:
        source_options(options, streaming=False)
    assert "s3cret" not in str(refused.value)


def test_ids_belong_to_their_kind_of_write() -> None:
    assert sink_options({**URL, "topic": "t", "sinkId": "a"}, streaming=True).sink_id == "a"
    with pytest.raises(BadSetting, match="writeId"):
        sink_options({**URL, "topic": "t", "writeId": "a"}, streaming=True)
    with pytest.raises(BadSetting, match="sinkId"):
        sink_options({**URL, "topic": "t", "sinkId": "a/b"}, streaming=False)
