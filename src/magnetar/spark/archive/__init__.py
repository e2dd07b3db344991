# SPDX-License-Identifier: Apache-2.0
"""A topic's closed ledgers as Parquet files, exactly once, and history with the live tail as one table.

Called by `magnetar pipeline archive` and by the data source's option `history`. Never changes a topic; it may move one
subscription that holds data until it is archived.
"""
