# SPDX-License-Identifier: Apache-2.0
"""Bytes ⇄ meaning: Pulsar's frames, commands and messages, and in `bookkeeper/` what bookies speak and store.

Everyone above calls it: connections cut and build frames here, the ledger packs entries here. It never does I/O, never
waits, and keeps no state but that of a half-received frame.
"""
