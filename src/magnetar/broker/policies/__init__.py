# SPDX-License-Identifier: Apache-2.0
"""What namespaces and topics are told to do: their records, the values in them, and what holds for one topic.

The broker asks `Policies` what holds; administration sets and reads through it. Never acts on a policy: whoever owns
the thing that a policy is about does.
"""
