# SPDX-License-Identifier: Apache-2.0
"""Messages on their way to other clusters, and what those clusters tell about the places of subscriptions.

A topic has one replicator for each other cluster that its policies name: a durable cursor, and a producer on the topic
of the same name over there. Nothing of a topic that stays in its cluster is touched by this room.
"""
