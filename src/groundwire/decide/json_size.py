"""How long a text becomes in a record: control characters take six bytes each there."""

import json


def json_size(text: str) -> int:
    """Return the bytes of a text as a JSON string in UTF-8, its quotes included."""
    return len(json.dumps(text, ensure_ascii=False).encode())
