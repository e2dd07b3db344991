# SPDX-License-Identifier: Apache-2.0
"""Paths of the WebSocket API: what each asks for, and what is wrong with those that ask for nothing."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.errors import BadName, BadSetting, MagnetarError, TopicNotFound
from magnetar.websocket.endpoint import TOPICS_MAX, Endpoint, Kind, endpoint_of


def found(path: str, **parameters: str) -> Endpoint:
    return endpoint_of(path, parameters)


@pytest.mark.feature("F-PH-10", "B-27")
def test_one_topic() -> None:
    made = found("/ws/v2/producer/persistent/t/n/a%20b")
    assert (made.kind, made.name, made.subscription) == (Kind.PRODUCER, "persistent://t/n/a b", "")
    taken = found("/ws/v2/consumer/non-persistent/t/n/x/s%2F1")
    assert (taken.kind, taken.name, taken.subscription) == (Kind.CONSUMER, "non-persistent://t/n/x", "s/1")
    assert found("/ws/v2/reader/persistent/t/n/x-partition-3").namespace == "t/n"


@pytest.mark.feature("B-27")
def test_many_topics() -> None:
    named = found("/ws/v3/consumer/s", topics="a, persistent://t/n/b,a")
    assert [str(topic) for topic in named.topics] == ["persistent://public/default/a", "persistent://t/n/b"]
    assert (named.namespace, named.subscription) == ("public/default", "s")
    matched = found("/ws/v3/consumer/s", topicsPattern="persistent://t/n/a.*")
    assert (matched.pattern, matched.topics, matched.namespace) == ("persistent://t/n/a.*", (), "t/n")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/ws/v2/nothing/persistent/t/n/x", TopicNotFound),
        ("/ws/v4/producer/persistent/t/n/x", TopicNotFound),
        ("/ws/", TopicNotFound),
        ("/ws/producer/persistent/t/cluster/n/x", BadName),
        ("/ws/v2/producer/persistent/t/n", BadName),
        ("/ws/v2/producer/persistent/t/n/", BadName),
        ("/ws/v2/producer/perishable/t/n/x", BadName),
        ("/ws/v2/producer/persistent/a%20b/n/x", BadName),
        ("/ws/v2/consumer/persistent/t/n/x", BadName),
        ("/ws/v2/consumer/persistent/t/n/x/", BadName),
        ("/ws/v2/consumer/persistent/t/n/x/s/more", BadName),
        ("/ws/v3/consumer", BadName),
        ("/ws/v3/consumer/s", BadSetting),
    ],
)
def test_what_is_served_nowhere_or_asked_wrongly(path: str, kind: type[MagnetarError]) -> None:
    with pytest.raises(kind):
        found(path)


def test_topics_and_a_pattern_exclude_each_other_and_topics_are_bounded() -> None:
    with pytest.raises(BadSetting, match="not both"):
        found("/ws/v3/consumer/s", topics="a", topicsPattern="b")
    with pytest.raises(BadSetting, match="more than"):
        found("/ws/v3/consumer/s", topics=",".join(str(number) for number in range(TOPICS_MAX + 1)))


@given(
    st.lists(
        st.sampled_from(["", "ws", "v2", "v3", "consumer", "persistent", "%", "%2F", "%00", "é", "a"]), max_size=10
    )
)
def test_any_path_is_an_endpoint_or_refused(parts: list[str]) -> None:
    with contextlib.suppress(MagnetarError):
        assert found("/".join(["", "ws", *parts])).name
