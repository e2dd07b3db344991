# SPDX-License-Identifier: Apache-2.0
"""Compaction: a second view of a topic that has the latest message of every key.

Called by the topic's owner when a threshold or an administrator says so, and by dispatch for consumers that read the
compacted view. Never changes the topic itself.
"""
