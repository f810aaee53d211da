"""What whoever is on call looks at: a real Prometheus over real workers has data for every panel and every rule.

Requirements X-07, X-11.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.app import ROLES
from deploy.embedded import MissingServiceError
from deploy.embedded.process import free_port
from deploy.grafana.panels import ROWS
from tests.stream.harness import COMMAND, ROOT, Deployment, Worker, good, response, until
from tests.stream.office import Office
from tests.stream.site import Site
from tests.stream.watching import Programs, sealed, selectors, watching

pytestmark = [
    pytest.mark.stream,
    pytest.mark.slow,
    pytest.mark.embedded,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        os.environ.get("GROUNDWIRE_TEST_BROKER", "embedded") != "embedded", reason="once is enough"
    ),
]


@pytest.fixture
def programs() -> Programs:
    """Prometheus and the exporter; without them skip, but fail in CI."""
    try:
        return Programs.find()
    except MissingServiceError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


async def test_every_panel_and_every_rule_has_data_under_load_and_health_checks_tell_who_lives(
    programs: Programs, deployment: Deployment, office: Office, site: Site, tmp_path: Path
):
    panels = [
        query.expr.replace("$__rate_interval", "30s")
        for row in ROWS
        for panel in row.panels
        for query in panel.queries
    ]
    rules_ = [
        selector
        for group in yaml.safe_load((ROOT / "deploy/prometheus/rules/groundwire.yml").read_text())["groups"]
        for rule in group["rules"]
        for selector in selectors(rule["expr"])
    ]
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    waves, decided = count(1), set()

    async def send() -> None:
        """Send claims, responses, citations and broken records, and approve what earlier waves brought to review."""
        wave = next(waves)
        first = wave * 20
        claims = [good(number) for number in range(first, first + 10)]
        cited = [
            good(first + at, content=f"Service {first + at} is described at {site.url}/{page}/{first}")
            for at, page in enumerate(("ok", "gone"), 10)
        ]
        if wave % 5 == 1:
            page = f"{site.url}/hang/{first}"
            cited.append(good(first + 15, content=f"It is said so at {page}"))
        await deployment.produce([*claims, *claims[:1], *cited, b"{"])
        quoted = {"transcript": "I cannot sleep at all.", "evidence": {"sleep": ["I cannot sleep"]}}
        answers = [response(number, **quoted) for number in range(first, first + 3)]
        await deployment.produce(answers, topic="llm-responses")
        for seen in list(deployment.seen["review"]):
            decision = seen.json
            if decision["facts"]["place"] == "free" and decision["decision_id"] not in decided:
                decided.add(decision["decision_id"])
                if len(decided) % 3:
                    await office.act("approve", seen)

    def start(service: str, **more: str) -> Worker:
        """Start a service of docker-compose.yml by its own command, sealed as its container is."""
        program, *arguments = services[service]["command"]
        own = {"python": [sys.executable], "groundwire": [sys.executable, "-c", COMMAND]}[program]
        port = free_port()
        environment = deployment.settings(GROUNDWIRE_METRICS_PORT=str(port), **more)
        command, environment = sealed([*own, *arguments], environment, deployment.folder / f"tmp-{service}")
        worker = Worker(command, environment, deployment.folder / f"{service}.log", port)
        deployment.workers.append(worker)
        return worker

    async def healthy(command: list[str], port: int) -> bool:
        """Run a health check of a container, as a process beside what it checks."""
        environment = {**os.environ, "GROUNDWIRE_METRICS_PORT": str(port)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command[1:], env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        return await process.wait() == 0

    text = re.sub(r"\\\n", " ", (ROOT / "deploy" / "Dockerfile").read_text())
    (line,) = re.findall(r"^HEALTHCHECK .*CMD\s+(\[.*\])$", text, re.MULTILINE)
    of_image: list[str] = json.loads(line)
    deployment.environment |= site.settings
    workers = [start(role, **deployment.sealing) for role in ROLES]
    for worker in workers:
        await worker.ready()
    port = str(free_port())
    desk = start("console", GROUNDWIRE_CONSOLE_KEY="console", GROUNDWIRE_CONSOLE_PORT=port)
    targets = {role: worker.port for role, worker in zip(ROLES, workers, strict=True)}
    everybody = {**targets, "console": desk.port}
    async with watching(programs, tmp_path, everybody, deployment.redis.url) as prometheus:
        behind = [  # deferred waits for pages that never come
            f"max(max_over_time({metric}{{role='deferred'}}[10m])) > 0"
            for metric in ("groundwire_lag_records", "groundwire_commit_age_seconds")
        ]
        counts = [f"count({selector})" for selector in rules_]
        left = [*panels, *counts, *behind]
        end = asyncio.get_running_loop().time() + 180
        while left and asyncio.get_running_loop().time() < end:
            await send()
            await asyncio.sleep(1)  # Prometheus scrapes every second
            left = await prometheus.without_data(left)
        assert left == []
        groups = (await prometheus.ask("rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
        assert await prometheus.values("count(up == 1)") == [len(targets) + 3]

        of_console = [part.replace("8700", port) for part in services["console"]["healthcheck"]["test"][1:]]
        assert all([await healthy(of_image, worker.port) for worker in workers])
        assert await healthy(of_console, desk.port)
        assert await asyncio.gather(workers[0].stop(), desk.stop()) == [0, 0]
        assert not await healthy(of_image, workers[0].port)
        assert not await healthy(of_console, desk.port)
        await until(lambda: not workers[0].alive, "the worker is gone")
