"""Variables of the environment that begin as Groundwire's do and that nothing reads: most likely misspelt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from groundwire.errors import did_you_mean

PREFIX: Final = "GROUNDWIRE_"
_OF_COMMANDS: Final = frozenset({"GROUNDWIRE_REVIEWER", "GROUNDWIRE_REVIEWER_KEY"})
"""What commands read as defaults of their options, beside the settings."""
_OF_OTHERS: Final = re.compile(
    r"GROUNDWIRE_(TEST_\w+|KAFKA_JARS|SOURCES|REDIS_(MEMORY|LIMIT|PASSWORD)|\w*SERVICE_(HOST|PORT)\w*|\w*PORT_\d+_(TCP|UDP)\w*)"
)
"""What tests and compose files read, and what Kubernetes sets for services."""


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that nothing reads, with the nearest name that something does."""
    given = sorted(name for name in environment if name.startswith(PREFIX))
    return [
        f"{name} is no setting of Groundwire{did_you_mean(name, known_variables(), PREFIX)}"
        for name in given
        if name not in known_variables() and not _OF_OTHERS.fullmatch(name)
    ]


@cache
def known_variables() -> frozenset[str]:
    # here, so that a command whose environment holds none of ours does not wait for these
    from groundwire.config import PREFIX as KAFKA  # noqa: PLC0415 - see above
    from groundwire.config import KafkaSecurity, Settings  # noqa: PLC0415 - see above
    from groundwire.console.settings import ConsoleSettings  # noqa: PLC0415 - see above
    from groundwire.policy import policy_variables  # noqa: PLC0415 - see above
    from groundwire.verify.models import PREFIX as MODEL  # noqa: PLC0415 - see above
    from groundwire.verify.models import ModelSettings  # noqa: PLC0415 - see above

    settings = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    console = [f"{PREFIX}CONSOLE_{name.upper()}" for name in ConsoleSettings.model_fields]
    kafka = [f"{KAFKA}{name.upper()}" for name in KafkaSecurity.model_fields]
    model = [f"{MODEL}{name.upper()}" for name in ModelSettings.model_fields]
    return _OF_COMMANDS.union(settings, console, kafka, model, policy_variables())
