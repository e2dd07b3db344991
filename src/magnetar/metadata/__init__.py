# SPDX-License-Identifier: Apache-2.0
"""Few shared facts with versions, watches and leases: store, implementations, coordination.

Called by ledger, managed_ledger, bookie and broker through `store.MetadataStore`; `open.py` turns a URL into a store.
Never holds messages, and never knows what a record means.
"""
