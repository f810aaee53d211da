"""Licences of what workers install: what they declare, and which are accepted."""

from __future__ import annotations

from email.message import Message
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy import licences


def package(*headers: tuple[str, str]) -> Message:
    made = Message()
    for name, value in headers:
        made[name] = value
    return made


def test_an_expression_counts_before_a_name_and_a_name_before_a_classifier() -> None:
    classifier = ("Classifier", "License :: OSI Approved :: BSD License")
    assert licences.licence(package(("License", "MIT"), classifier, ("License-Expression", "Zlib"))) == "Zlib"
    assert licences.licence(package(("License", "MIT"), classifier)) == "MIT"
    assert licences.licence(package(("License", "Copyright " * 20), classifier)) == "BSD License"
    assert licences.licence(package(("Classifier", "Topic :: Database"))) == ""


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("MIT", True),
        ("Apache-2.0 AND MIT", True),
        ("GPL-3.0-only OR BSD-3-Clause", True),
        ("GPL-3.0-only AND BSD-3-Clause", False),
        ("LGPL-2.1-or-later", False),
        ("GNU Affero General Public License v3", False),
        ("Elastic-2.0", False),
        ("", False),
    ],
)
def test_a_licence_is_accepted_that_asks_for_no_more_than_to_be_named(name: str, *, accepted: bool) -> None:
    assert licences.permissive(name) is accepted


def test_of_a_lock_the_packages_count_that_this_machine_installs(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(
        "click==8.1.8 \\\n    --hash=sha256:00\n"
        "only-elsewhere==1.0 ; sys_platform == 'nowhere' \\\n    --hash=sha256:11\n"
        "here==1.0 ; sys_platform != 'nowhere' \\\n    --hash=sha256:22\n"
    )
    assert list(licences.locked(lock)) == ["click", "here"]


def test_a_package_that_is_not_accepted_fails_the_command_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(licences, "locked", lambda: iter(["click", "no-such-package"]))
    result = CliRunner().invoke(licences.main)
    assert result.exit_code == 1
    assert "no-such-package" in result.output
    assert "names no licence   <- refused" in result.output
