"""What a reviewer has beside an item, and decides in one go."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect


@pytest.mark.smoke
def test_g_opens_the_guidelines_of_the_tenant_and_says_where_there_are_none(
    consoles, people, tmp_path
) -> None:
    (tmp_path / "acme.md").write_text("# Prices\n\nReject every price without a list.")
    for folder in (tmp_path, None):
        reader = people(consoles.start(guidelines=folder))
        reader.open_first()
        reader.press("g")
        if folder is None:
            reader.said("no guidelines")
            continue
        expect(reader.page.locator("#guidelines")).to_have_attribute("open", "")
        expect(reader.page.get_by_role("heading", name="Prices")).to_be_visible()
        reader.press("g")
        expect(reader.page.get_by_role("heading", name="Prices")).to_be_hidden()
        assert reader.complaints == []
