"""The records that cross a boundary: pydantic models, their decoding, keys, identities and headers.

Nothing in here imports anything else of Groundwire but its errors.
"""
