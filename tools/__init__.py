# SPDX-License-Identifier: Apache-2.0
"""Scripts of the house: suites, features, generators. The Makefile calls them; the package never imports them."""
