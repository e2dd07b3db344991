# SPDX-License-Identifier: Apache-2.0
"""The command `magnetar`: parses flags, builds an assembler or a client, prints. Never holds a rule of its own."""
