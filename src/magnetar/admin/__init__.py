# SPDX-License-Identifier: Apache-2.0
"""Administration over HTTP: Apache Pulsar's admin v2 and v3, look-up, metrics and health, one module per noun.

Called by tools and people through AdminServer, which the assembler starts after the broker serves its clients. Never
decides what a topic or a subscription does: it asks the broker, and writes records that the broker reads.
"""
