# SPDX-License-Identifier: Apache-2.0
"""The command `magnetar`: one module per noun. Reads flags and files, builds what they ask for, prints; decides
nothing else.
"""
