"""Every id of docs/develop/requirements.toml is named by the code that carries it and a test that shows it."""

import re
import tomllib
from collections.abc import Iterator

from tests.unit.docs.pages import ROOT


def test_each_id_is_named_by_code_and_by_a_test_and_each_named_id_has_a_text() -> None:
    # an id, or a range of them: `S0-46`, `S0-46 to S0-63`, `S0-46..S0-63`
    pattern = re.compile(r"\b(S[0-4]|X|C)-(\d{2,3})(?:(?: to |\.\.)\1-(\d{2,3}))?\b")

    def ids(text: str) -> Iterator[str]:
        for kind, first, last in pattern.findall(text):
            yield from (f"{kind}-{one:02d}" for one in range(int(first), int(last or first) + 1))

    texts = tomllib.loads((ROOT / "docs/develop/requirements.toml").read_text("utf-8"))
    known = {one for theme in texts["theme"] for one in theme["rows"]}
    cases = (
        (("src", "agents", "topics", "deploy"), "carried", ()),
        (("tests", "bench"), "shown", texts["open"]),
    )
    for folders, listed, open_ in cases:
        files = [
            path
            for folder in folders
            for path in (ROOT / folder).rglob("*")
            if path.suffix in {".py", ".lua"} and path.name != "test_requirements.py"
        ]
        named = {one for path in files for one in ids(path.read_text("utf-8"))}
        for place, placed in texts[listed].items():
            assert (ROOT / place).exists(), place
            named |= set(placed)
        assert named - known == set(), "docs/develop/requirements.toml has no text of these"
        assert known - named - set(open_) == set(), f"no file of {', '.join(folders)} names these"
