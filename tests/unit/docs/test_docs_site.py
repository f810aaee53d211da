"""The documentation as a site: it is built from its pages alone, its links lead somewhere, it loads nothing foreign."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

from tests.unit.docs.pages import ROOT


@pytest.mark.slow
def test_every_link_of_the_site_leads_to_a_place_in_it_pictures_have_texts_and_no_other_host_is_asked(
    tmp_path: Path,
) -> None:
    from properdocs.commands.build import build  # noqa: PLC0415 - half a second that fast runs do not need
    from properdocs.config import load_config  # noqa: PLC0415 - as above

    folder = tmp_path
    build(load_config(str(ROOT / "properdocs.yml"), site_dir=str(folder)))

    class Page(HTMLParser):
        """What a page of the site leads to, what it loads, and what can be led to in it."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.links: list[str] = []
            self.loads: list[str] = []
            self.anchors: set[str] = set()
            self.unnamed_pictures = 0
            self.feed(text)

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = {key: value or "" for key, value in attrs}
            self.anchors |= {values[key] for key in ("id", "name") if key in values}
            self.unnamed_pictures += tag == "img" and not values.get("alt")
            if tag == "a" and "href" in values:
                self.links.append(values["href"])
            elif "src" in values:
                self.loads.append(values["src"])
            elif tag == "link" and "canonical" not in values.get("rel", ""):
                self.loads.append(values.get("href", ""))

    pages = {path: Page(path.read_text("utf-8")) for path in folder.rglob("*.html")}
    assert len(pages) > 10
    wrong = []
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            if urlsplit(link).scheme or link.startswith("//") or not link:
                continue
            place, anchor = urldefrag(link)
            place = unquote(place.partition("?")[0])
            start = folder if path.name == "404.html" else path.parent  # 404 is served from anywhere
            target = (start / place.lstrip("/")).resolve() if place else path
            target = target / "index.html" if target.is_dir() else target
            missing = not target.is_file()
            if missing or (
                anchor and target.suffix == ".html" and unquote(anchor) not in pages[target].anchors
            ):
                wrong.append(f"{path.relative_to(folder)}: {link}")
    assert wrong == []

    foreign = {path: one for path, page in pages.items() for one in page.loads if re.match(r"(\w+:)?//", one)}
    styles = {
        style: found
        for style in folder.rglob("*.css")
        if (found := re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", style.read_text("utf-8")))
    }
    assert (foreign, styles) == ({}, {})
    assert [path for path, page in pages.items() if page.unnamed_pictures] == []
