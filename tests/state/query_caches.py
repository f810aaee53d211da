"""A response as validated-response caches take it, in tests."""


def response(**fields) -> dict:
    """A response that may be cached."""
    good = {"answer": "5 [source:1]", "confidence": 0.9, "warnings": [], "validation": {"confidence": 0.9}}
    return {**good, **fields}
