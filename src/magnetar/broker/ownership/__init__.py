# SPDX-License-Identifier: Apache-2.0
"""Which broker serves which topic: bundles, claims, members, load. Asked by look-ups; never opens a topic."""
