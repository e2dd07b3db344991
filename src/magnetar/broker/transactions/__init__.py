# SPDX-License-Identifier: Apache-2.0
"""Transactions: coordinators and their logs, what topics hold back, acknowledgements that wait. Called by the broker,
its sessions and its topics. Never knows the protocol's frames.
"""
