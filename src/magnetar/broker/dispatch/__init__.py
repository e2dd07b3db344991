# SPDX-License-Identifier: Apache-2.0
"""Who gets which entry: one deciding machine per subscription type. Called by Subscription only; never reads, sends
or waits.
"""
