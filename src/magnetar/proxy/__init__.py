# SPDX-License-Identifier: Apache-2.0
"""The proxy: one address for clients that cannot, or shall not, reach brokers themselves.

Called by the command line. Holds no state that another proxy could not have: any number of them may stand side by side.
Never decodes what passes between a client and the broker that serves its topic.
"""
