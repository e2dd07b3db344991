# SPDX-License-Identifier: Apache-2.0
"""One bookie: entries by (ledger, entry), durable before they are answered, never absent when it is only unsure.

`storage.py` is the door: the bookie's server and the assembler's local channel call it, nothing else in here. The rooms
behind it: journal (durability), write cache and entry logs (space), index (where), checkpoint (how far), garbage (what
may go). Never imports ledger, managed_ledger or broker; never looks inside an entry's body; never speaks to the
metadata store: such questions are passed in as functions.
"""
