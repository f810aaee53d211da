"""The readable text of a web page, from a bounded number of bytes, in time linear in them."""

import html
import zlib
from collections.abc import Mapping

MAX_BODY = 65_536  # bytes read from the network
_MAX_DECODED = 262_144  # bytes after decompression: a bomb of 64 kB stops here
_TEXTUAL = ("text/", "application/json", "application/xml", "application/xhtml+xml")
_LATIN = frozenset({"iso-8859-1", "latin-1", "latin1", "windows-1252", "cp1252"})
_UNREAD = frozenset({"script", "style", "template", "noscript"})


def page_text(body: bytes, headers: Mapping[str, str]) -> str | None:
    """Return the words of a response, or None where they cannot be read.

    Args:
        body: The first bytes of the body as sent, at most `MAX_BODY` are looked at.
        headers: The response's headers, names in any case (an `httpx.Headers`).
    """
    kind, _, parameters = headers.get("content-type", "").lower().partition(";")
    kind = kind.strip()
    if not kind.startswith(_TEXTUAL):
        return None
    decoded = _decompress(body[:MAX_BODY], headers.get("content-encoding", "identity").strip().lower())
    if decoded is None:
        return None
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'")
    text = decoded.decode("cp1252" if charset in _LATIN else "utf-8", errors="replace")
    return " ".join((_without_tags(text) if "html" in kind else text).split())


def _decompress(body: bytes, encoding: str) -> bytes | None:
    if encoding in ("identity", ""):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(body, _MAX_DECODED)
    except zlib.error:
        return None


def _without_tags(page: str) -> str:
    """Drop tags, scripts and styles. Splitting, not a parser: hostile markup must not cost quadratic time."""
    head, *parts = page.split("<")
    kept, inside = [head], ""
    for part in parts:
        tag, _, rest = part.partition(">")
        name = (tag.split(maxsplit=1) or [""])[0].lower()
        if inside:
            inside = "" if name == f"/{inside}" else inside
            kept.append("" if inside else rest)
        elif name in _UNREAD:
            inside = name
        else:
            kept.append(rest)
    return html.unescape(" ".join(kept))
