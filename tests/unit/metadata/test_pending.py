# SPDX-License-Identifier: Apache-2.0
"""Requests under way: counted while they are, refused beyond the limits, forgotten however they end."""

from contextlib import ExitStack

import pytest

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import MetadataError, TooManyRequests
from magnetar.metadata.pending import PendingRequests


def test_so_many_requests_and_no_more() -> None:
    pending = PendingRequests("etcd", MetadataSettings(operations_pending_max=2))
    with ExitStack() as under_way:
        for _ in range(2):
            under_way.enter_context(pending.one_more(1))
        with pytest.raises(TooManyRequests, match="2 requests wait for etcd"), pending.one_more(1):
            pass
    with pending.one_more(1):
        pass


def test_so_many_bytes_and_a_request_that_fails_gives_its_own_back() -> None:
    pending = PendingRequests("ZooKeeper", MetadataSettings(pending_bytes_max=1_000_000))

    def fail() -> None:
        with pending.one_more(1_000_000):
            with pytest.raises(TooManyRequests, match="1000000 bytes wait for ZooKeeper"), pending.one_more(1):
                pass
            raise MetadataError("no answer")

    with pytest.raises(MetadataError):
        fail()
    with pending.one_more(1):
        pass
