# SPDX-License-Identifier: Apache-2.0
"""An asyncio client of the Pulsar protocol, for users, replication, Spark, the command line and tests.

Works against Magnetar and Apache Pulsar alike; never imports a server room.
"""
