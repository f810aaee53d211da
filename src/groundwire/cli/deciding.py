"""What commands that decide records without services share: their options, and where they may look things up."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from groundwire.cli.options import Command, keys_file_option, policy_option, with_options
from groundwire.config import load_settings
from groundwire.errors import did_you_mean
from groundwire.gate.claim_case import dedup_scheme
from groundwire.gate.lookups import assessor_of
from groundwire.gate.responses import policy_advice
from groundwire.keys.attestation import Keys
from groundwire.library.check import Checker
from groundwire.logs import configure_logs
from groundwire.messages.base import from_milliseconds, to_milliseconds
from groundwire.messages.headers import ATTESTATION, READ, Headers
from groundwire.policy import load_policy
from groundwire.text.normalise import escape_controls
from groundwire.verify.citations import CitationVerifier, load_sources
from groundwire.verify.models import load_model
from groundwire.verify.url import UrlChecker

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--adr-dir", type=_FOLDER, help="Folder of ADR files: ADR-12-title.md, 0012-title.md."),
    click.option("--repo", type=_FOLDER, help="Git repository for commits."),
    click.option("--no-network", is_flag=True, help="URLs and issues become unknown; no model is asked."),
    policy_option,
    keys_file_option("--keys"),
)


@dataclass(frozen=True, slots=True)
class DecidingOptions:
    """What a command was given to decide records by; None: that of the settings."""

    policy_file: Path | None
    adr_dir: Path | None
    repo: Path | None
    no_network: bool
    keys_file: Path | None


def deciding_options(command: Command) -> Callable[..., None]:
    """Give a command the options by which records are decided, passed as one `given`."""

    @wraps(command)
    def run(**options: Any) -> None:  # noqa: ANN401 - the command's own, too
        own = {field.name: options.pop(field.name) for field in fields(DecidingOptions)}
        command(given=DecidingOptions(**own), **options)

    return with_options(_OPTIONS, run)


class Deciding:
    """A checker with all that it asks; an asynchronous context, which closes its connections.

    `now`: the clock of every record; None: the start. Raises: UsageError, a setting or the policy is wrong.
    """

    def __init__(self, given: DecidingOptions, now: datetime | None = None) -> None:
        settings = load_settings()
        configure_logs(settings.log_format, settings.log_level)  # standard output is for results
        self.policy = load_policy(given.policy_file or settings.policy_file, os.environ)
        dedup_scheme(self.policy)
        update = {"adr_dir": given.adr_dir or settings.adr_dir, "repo": given.repo or settings.repo}
        sources = load_sources(settings.model_copy(update=update))
        network = not (given.no_network or settings.no_network)
        moment = from_milliseconds(to_milliseconds(now or datetime.now(UTC)))  # as every record's clock
        urls = UrlChecker.of(settings, clock=lambda: moment)
        self._model = load_model(self.policy.verification, network=network)
        self._verifier = CitationVerifier(sources, network=network, urls=urls, clock=lambda: moment)
        assessor = assessor_of(self._model) if self._model else None
        # the file of the environment may be that of workers, and not there
        wanted = self.policy.attestation == "hmac" or _is_given("keys_file")
        self._keys = Keys.load(given.keys_file) if given.keys_file and wanted else None
        self._headers = Counter[str]()
        self.checker = Checker(
            self.policy, self._verifier, now=moment, assessor=assessor, keys=self._keys, on_headers=self._note
        )

    def advise(self) -> None:
        for advice in policy_advice(self.policy):
            _warn(advice)
        signed = self.policy.attestation == "hmac"
        if signed and self._keys is None:
            _warn('attestation = "hmac", and no keys (--keys): no signature counts')
        if not signed and _is_given("keys_file"):
            _warn('--keys changes nothing: signatures count with attestation = "hmac" of the policy')

    def _note(self, headers: Headers) -> None:
        """Count a record and its headers, and tell of one that is misspelt."""
        self._headers[""] += 1
        for name, _ in headers:
            self._headers[name] += 1
            meant = did_you_mean(name.lower(), READ)
            ours = meant or name.lower().startswith("gw-")
            if ours and name not in READ and self._headers[name] == 1:
                _warn(f"header {name}: there is none of that name, and it counts for nothing{meant}")

    async def __aenter__(self) -> Checker:
        if self._model is not None:
            await self._model.open()
        return self.checker

    async def __aexit__(self, *_: object) -> None:
        """Close the connections, and tell whether the model failed, and whether signatures are wanting."""
        unsigned = self._headers[""] and not self._headers[ATTESTATION]
        if self.policy.attestation == "hmac" and self._keys is not None and unsigned:
            _warn(f'attestation = "hmac", and no record is signed: none has the header {ATTESTATION}')
        await self._verifier.close()
        if self._model is not None:
            await self._model.close()
            if self._model.trouble:
                _warn(f"the model failed, last by {self._model.trouble}")


def _is_given(option: str) -> bool:
    """Say whether an option is on the command line, not in the environment."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(option) is ParameterSource.COMMANDLINE


def _warn(text: str) -> None:
    click.echo(escape_controls(f"warning: {text}"), err=True)
