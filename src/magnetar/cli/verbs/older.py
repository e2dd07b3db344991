# SPDX-License-Identifier: Apache-2.0
"""Verbs that only the older nouns have.

Decides.
"""

from magnetar.cli.verbs.verb import Verb, verb
from magnetar.cli.words import Kind, flag


def list_in_bundle() -> Verb:
    return verb(
        "list-in-bundle",
        "List the non-persistent topics of a bundle.",
        "GET",
        "/admin/v2/non-persistent/{namespace}/{bundle}",
        flag("--bundle -b", Kind.TEXT, "The bundle, as 0x00000000_0x40000000.", required=True),
    )
