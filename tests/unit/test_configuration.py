"""The generated page of settings and policy keys."""

from pathlib import Path

import pytest

from groundwire.config import Settings
from groundwire.epistemic.types import VerificationConfig
from groundwire.policy import Hedges, Limits, Policy
from schemas.configuration import main, page


def test_every_setting_and_every_key_of_the_policy_stands_on_the_page_with_its_meaning() -> None:
    text = page()
    for name, field in Settings.model_fields.items():
        assert f"| `GROUNDWIRE_{name.upper()}` |" in text
        assert field.description
        assert field.description in text
    keys = {name for model in (Policy, Hedges, Limits, VerificationConfig) for name in model.model_fields}
    assert [key for key in keys - {"hedges", "limits", "verification"} if f"| `{key}` |" not in text] == []
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert all(cell.strip() for row in rows for cell in row.split(" | ")[1:])


def test_a_page_that_is_out_of_date_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "configuration.md"
    assert main(["check", str(file)]) == 1
    assert main(["write", str(file)]) == 0
    assert main(["check", str(file)]) == 0
    file.write_text(file.read_text().replace("0.92", "0.93"))
    assert main(["check", str(file)]) == 1
    assert "make generate" in capsys.readouterr().err
