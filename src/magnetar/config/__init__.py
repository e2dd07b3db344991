# SPDX-License-Identifier: Apache-2.0
"""Settings: one small frozen class per owner, and the table that maps Pulsar's keys to them.

Every room reads its own class; the assemblers in `cli` call `load.py`. Never reads a file:
text comes in, settings go out.
"""
