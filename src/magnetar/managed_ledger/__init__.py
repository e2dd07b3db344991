# SPDX-License-Identifier: Apache-2.0
"""One endless log per topic, and its cursors.

ManagedLedgers opens them; a ManagedLedger appends, reads and trims; a Cursor remembers what a subscription has
consumed. Called by the broker; uses ledgers and the metadata store. Never knows clients, messages or topics.
"""
