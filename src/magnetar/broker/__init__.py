# SPDX-License-Identifier: Apache-2.0
"""Serving: connections, sessions, topics, subscriptions and who gets which entry.

The assemblers (standalone, cli) build a Broker; admin asks it questions. Never imports bookie: storage is a managed
ledger.
"""
