"""Texts in addresses: what is searched for may be what a claim says, so an address holds it encrypted."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import Final

from cryptography.fernet import Fernet, InvalidToken
from starlette.exceptions import HTTPException

MAX_ENCRYPTED: Final = 1_200
"""Characters of a search of 200 characters, each of four bytes."""
_OTHER: Final = "search: made before the console was started, or elsewhere; search again"


class SearchCipher:
    """Encrypts and reads back searches; every console with the same secret reads what another one made."""

    def __init__(self, secret: str) -> None:
        key = hashlib.sha256(b"groundwire search\0" + secret.encode()).digest()
        self._fernet = Fernet(urlsafe_b64encode(key))

    def encrypt(self, text: str) -> str | None:
        """Return what stands in an address for a text; None for an empty one."""
        return self._fernet.encrypt(text.encode("utf-8", "surrogatepass")).decode() if text else None

    def decrypt(self, encrypted: str | None) -> str:
        """Return the text. Raises: HTTPException 400, it was encrypted under another secret, or by nobody."""
        if not encrypted:
            return ""
        try:
            return self._fernet.decrypt(encrypted).decode("utf-8", "surrogatepass")
        except (InvalidToken, ValueError):
            raise HTTPException(400, _OTHER) from None
