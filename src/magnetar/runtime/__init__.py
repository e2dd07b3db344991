# SPDX-License-Identifier: Apache-2.0
"""The outer world, small and swappable: disk, clock, tasks, loop, metrics, logs.

Every room above uses it; the only one that touches threads, files, time and chance. Never knows what a message is.
"""
