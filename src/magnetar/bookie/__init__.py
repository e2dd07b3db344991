# SPDX-License-Identifier: Apache-2.0
"""One bookie: entries by (ledger, entry), durable before they are answered, never absent when it is only unsure.

`storage.py` is the door: the bookie's server and the assembler's local channel call it, nothing else in here. The rooms
behind it: journal (durability), write cache and entry logs (space), index (where), checkpoint (how far), garbage (what
may go). Before it: `server.py` and `connection.py` (BookKeeper's port), `http.py`, `registration.py` (its own records
in the metadata), put together by `bookie.py`. Never imports ledger, managed_ledger or broker; never looks inside an
entry's body; never reads the records of ledgers: such questions are passed in as functions.
"""
