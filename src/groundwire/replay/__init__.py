"""Proving and replaying decisions: each is derived again from its record, its policy and its recorded facts (X-08).

Nothing here asks Redis or the network: what came from outside stands in the decisions' `facts`.
"""
