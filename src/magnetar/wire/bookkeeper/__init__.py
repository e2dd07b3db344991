# SPDX-License-Identifier: Apache-2.0
"""What bookies speak and store: packed entries, protocol versions 2 and 3, ledger metadata and cookies.

Called by `ledger` and `bookie`, the two ends of the protocol, and by tools that read either. It never does I/O.
"""
