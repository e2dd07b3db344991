# SPDX-License-Identifier: Apache-2.0
"""SQL over topics: every topic is a table, and a query reads of it what it needs.

Called by `magnetar sql` and by pipelines. Spark parses, plans and runs; here names become topics, and what Spark's
optimised plan uses becomes options of the source. Never parses SQL itself.
"""
