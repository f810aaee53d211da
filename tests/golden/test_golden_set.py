"""Every decision of the golden set comes out as it was kept, byte for byte."""

from tests.golden.__main__ import differences, make, read


def test_what_is_decided_is_what_was_kept():
    expected, made = read(), make()
    assert sorted(expected) == ["audit", "claims", "gate", "library", "responses"]
    assert sum(map(len, expected.values())) >= 2_000
    found = [line for part in expected for line in differences(expected[part], made[part])]
    assert not found, f"{len(found)} records differ:\n" + "\n".join(found[:20])
