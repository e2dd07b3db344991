# SPDX-License-Identifier: Apache-2.0
"""What one client may do now: the table of commands and what each of them does. Called by Connection; owns no topic."""
