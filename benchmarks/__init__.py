# SPDX-License-Identifier: Apache-2.0
"""Measurements, not tests: each prints a table and never asserts a time."""
