"""Text for tests of normalisation and hedges."""

from hypothesis import strategies as st

# Any string at all, lone surrogates included, rich in what the detector looks for.
PIECES = [
    "I", "i", "we", "think", "maybe", "may", "May", "not", "sure", "don’t", "know", "perhaps", "could",
    "around",
    "5", "2024", "in", " ", "  ", "\t", "\n", "\u200b", "\u00ad", "\u0301", "_", "*", ",", "'", "`", ".",
    "ﷺ", "㎏",
    "\u00a8", "ŉ", "ﾞ", "カ", "https://x.io/", "seems", "to", "me", "ｉ", "𝐭𝐡𝐢𝐧𝐤", "İ", "ſ",
]  # fmt: skip
ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.lists(st.sampled_from(PIECES)).map("".join)
