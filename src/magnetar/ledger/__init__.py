# SPDX-License-Identifier: Apache-2.0
"""One replicated log over several bookies: write, read, recover, repair.

Called by managed_ledger and the assemblers through `ledgers.py`; speaks to bookies through `channel.BookieChannel`.
Never imports bookie, and never knows topics.
"""
