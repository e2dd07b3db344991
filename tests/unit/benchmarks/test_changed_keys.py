# SPDX-License-Identifier: Apache-2.0
"""What rows say of keys that were changed."""

from pathlib import Path

from benchmarks.changed_keys import has_effect, words


def test_a_key_that_nothing_looks_at_is_named_as_such() -> None:
    assert words({}, "bookie") == "defaults"
    assert words({"flushInterval": "1000"}, "bookie") == "{'flushInterval': '1000'}"
    assert words({"numAddWorkerThreads": "8", "flushInterval": "1000"}, "bookie") == (
        "{'numAddWorkerThreads': '8', 'flushInterval': '1000'}; numAddWorkerThreads is accepted and without effect"
    )
    assert words({"numAddWorkerThreads": "8", "numReadWorkerThreads": "8"}, "bookie").endswith(
        "numAddWorkerThreads and numReadWorkerThreads are accepted and without effect"
    )


def test_keys_have_an_effect_where_their_role_has_them() -> None:
    assert has_effect("maxPendingReadRequestsPerThread", "20", "bookie")
    assert has_effect("bookkeeperEnableStickyReads", "false", "broker")
    assert not has_effect("numIOThreads", "4", "broker")


def test_paths_begin_at_the_directory() -> None:
    shown = words({"journalDirectories": "/there/x/a,/there/x/b"}, "bookie", Path("/there/x"))
    assert shown == "{'journalDirectories': 'a,b'}"
