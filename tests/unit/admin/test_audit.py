# SPDX-License-Identifier: Apache-2.0
"""The audit log: what differs is told, what is secret is not."""

import logging

import pytest

from magnetar.admin.audit import CHANGES_MAX, difference, note_change, start_trail, without_secrets, write_line


def test_only_what_differs_is_told() -> None:
    assert difference({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": [4]}) == "b 2 -> 3, c null -> [4]"
    assert difference(None, {"a": 1}) == "made, a null -> 1"
    assert difference({}, None) == "deleted"
    assert difference({"a": 1}, {"a": 1}) == "unchanged"


def test_secrets_are_left_out_at_any_depth() -> None:
    value = {"offload": {"credentialSecret": "canary", "bucket": "b"}, "list": [{"password": "canary"}]}
    assert "canary" not in str(without_secrets("", value))
    assert without_secrets("", value)["offload"]["bucket"] == "b"
    changed = difference({}, {"brokerClientAuthenticationParameters": "token:eyJhbGciOi.eyJzdWIiOi.canary"})
    assert "canary" not in changed


def test_reading_leaves_no_line_unless_it_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "magnetar.audit"):
        trail = start_trail()
        write_line(trail, "GET", "/a", "p", 200)
        assert not caplog.records
        write_line(trail, "GET", "/a", "p", 403)
        note_change("/record", {"x": 1}, {"x": 2})
        write_line(trail, "POST", "/b", "p", 204)
    refused, changed = caplog.records
    assert (refused.getMessage(), changed.getMessage()) == ("GET /a", "POST /b")
    assert changed.__dict__["changes"] == "/record: x 1 -> 2"


def test_one_line_tells_of_so_many_changes_and_no_more() -> None:
    trail = start_trail()
    for index in range(CHANGES_MAX + 5):
        note_change(f"/{index}", {}, {"x": index})
    assert len(trail.changes) == CHANGES_MAX
