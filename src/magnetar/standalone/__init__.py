# SPDX-License-Identifier: Apache-2.0
"""Everything in one process: metadata, a bookie and a broker, joined without a network. Built by the command line
and by fixtures.
"""
