"""Every entry, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.fuzz import answers, console, files, letters, places, records, reviews, topics
from tests.fuzz.entry import Entry

ENTRIES: Final[Mapping[str, Entry]] = {
    entry.name: entry
    for module in (records, reviews, letters, topics, files, console, places, answers)
    for entry in module.ENTRIES
}
