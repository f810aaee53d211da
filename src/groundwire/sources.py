"""Where each tenant's citations are looked up: from the settings, and from a file for single tenants."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from groundwire.attestation import not_toml
from groundwire.errors import UsageError
from groundwire.settings import Settings
from groundwire.verify.citations import DEFAULT_TENANT
from groundwire.verify.issues import GitHubTracker, GitLabTracker, IssueTracker
from groundwire.verify.local import Sources


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Tracker(_Section):
    kind: Literal["github", "gitlab"]
    url: str
    project: str
    token_env: str | None = None
    """Name of the variable that holds the token: no secret stands in the file."""


class _Tenant(_Section):
    adr_dir: Path | None = None
    repo: Path | None = None
    tracker: _Tracker | None = None


class _File(_Section):
    tenants: dict[str, _Tenant]


def load_sources(settings: Settings) -> dict[str, Sources]:
    """Return the sources of each tenant; `*` serves those that are not named.

    The file (`GROUNDWIRE_TENANTS_FILE`) has a table `[tenants."<id>"]` with `adr_dir`, `repo` and
    `tracker = {kind, url, project, token_env}`; `GROUNDWIRE_ADR_DIR` and `GROUNDWIRE_REPO` serve the others.

    Raises:
        UsageError: names the key that is wrong.
    """
    sources = {DEFAULT_TENANT: Sources(adr_dir=settings.adr_dir, repo=settings.repo)}
    path = settings.tenants_file
    if path is None:
        return sources
    try:
        file = _File.model_validate(tomllib.loads(path.read_text("utf-8")))
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"GROUNDWIRE_TENANTS_FILE {path}: {key}: {first['msg']}") from None
    except OSError as exc:
        raise UsageError(f"GROUNDWIRE_TENANTS_FILE {path}: {exc}") from None
    except (ValueError, RecursionError) as exc:
        raise UsageError(f"GROUNDWIRE_TENANTS_FILE {path}: {not_toml(exc)}") from None
    for tenant, section in file.tenants.items():
        tracker = (
            _tracker(section.tracker, os.environ, f"tenants.{tenant}.tracker") if section.tracker else None
        )
        sources[tenant] = Sources(adr_dir=section.adr_dir, repo=section.repo, tracker=tracker)
    return sources


def _tracker(section: _Tracker, environment: Mapping[str, str], where: str) -> IssueTracker:
    token = environment.get(section.token_env) if section.token_env else None
    if section.token_env and not token:
        raise UsageError(f"{where}.token_env: the variable {section.token_env} is not set")
    kinds: dict[str, Any] = {"github": GitHubTracker, "gitlab": GitLabTracker}
    try:
        tracker: IssueTracker = kinds[section.kind](section.url, section.project, token)
    except (ValueError, httpx.InvalidURL) as exc:
        raise UsageError(f"{where}: {exc}") from None
    return tracker
