"""Licences of what workers install: which licence a package declares, and which are accepted."""

from email.message import Message
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy import licences


def test_a_declared_licence_is_accepted_that_asks_for_no_more_than_attribution() -> None:
    """An expression counts before a name, and a name before a classifier."""

    def licence(*headers: tuple[str, str]) -> str:
        package = Message()
        for name, value in headers:
            package[name] = value
        return licences.licence(package)

    classifier = ("Classifier", "License :: OSI Approved :: BSD License")
    assert licence(("License", "MIT"), classifier, ("License-Expression", "Zlib")) == "Zlib"
    assert licence(("License", "MIT"), classifier) == "MIT"
    assert licence(("License", "Copyright " * 20), classifier) == "BSD License"
    assert licence(("Classifier", "Topic :: Database")) == ""
    accepted = ("MIT", "Apache-2.0 AND MIT", "GPL-3.0-only OR BSD-3-Clause")
    refused = ("GPL-3.0-only AND BSD-3-Clause", "LGPL-2.1-or-later", "GNU Affero General Public License v3")
    assert [name for name in accepted if not licences.permissive(name)] == []
    assert [name for name in (*refused, "Elastic-2.0", "") if licences.permissive(name)] == []


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
