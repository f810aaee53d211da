"""A real Prometheus over real workers has data for every panel of the dashboard and every rule (X-07, X-11)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.app import ROLES
from deploy.embedded.process import ServerProcess, find_program, free_port, listening
from deploy.grafana.panels import ROWS
from tests.services.fixtures import or_skip
from tests.services.serving import HOST, serving
from tests.stream.harness import COMMAND, ROOT, Deployment, Office, Site, Worker, good, response

FOLDER = ROOT / "deploy" / "prometheus"


@pytest.mark.stream
@pytest.mark.slow
@pytest.mark.embedded
@pytest.mark.timeout(400)
@pytest.mark.skipif(
    os.environ.get("GROUNDWIRE_TEST_BROKER", "embedded") != "embedded", reason="once is enough"
)
async def test_every_panel_and_every_rule_has_data_under_load_and_health_checks_tell_who_lives(
    deployment: Deployment, office: Office, site: Site, tmp_path: Path
):
    async def ask(port: int, path: str, **parameters: str) -> Any:
        """Ask Prometheus' HTTP API."""

        def answer() -> Any:
            query = urllib.parse.urlencode(parameters).encode() if parameters else None
            with urllib.request.urlopen(
                f"http://{HOST}:{port}/api/v1/{path}", data=query, timeout=10
            ) as said:
                return json.load(said)["data"]

        return await asyncio.to_thread(answer)

    async def values(port: int, query: str) -> list[float]:
        """The current values of a query's series, without those that are no number."""
        found = (await ask(port, "query", query=query))["result"]
        return [value for series in found if (value := float(series["value"][1])) == value]

    @asynccontextmanager
    async def prometheus(targets: Mapping[str, int]) -> AsyncIterator[int]:
        """Run Prometheus with the rules of the repository, every second, over metrics ports by role."""
        names = ("prometheus", "prometheus-redis-exporter")
        server, exporter = [
            or_skip(lambda n=name: find_program(n, f"Debian's package {n}")) for name in names
        ]  # type: ignore[misc]
        port, redis_port = free_port(), free_port()
        file = tmp_path / "prometheus.yml"
        exporting = [f"-redis.addr={deployment.redis.url}", f"-web.listen-address={HOST}:{redis_port}"]
        scraping = [f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'prometheus'}"]
        scraping.append(f"--web.listen-address={HOST}:{port}")
        servers = {
            redis_port: ServerProcess(
                "redis exporter", [exporter, *exporting], tmp_path / "redis-exporter.log"
            ),
            port: ServerProcess("prometheus", [server, *scraping], tmp_path / "prometheus.log"),
        }

        async def say_lag(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # what kafka-exporter 1.9 answers, by its documentation: no package brings it here
            labels = b'consumergroup="groundwire-claims",partition="0",topic="groundwire.claims"'
            lag = b"kafka_consumergroup_lag{%s} 0\n" % labels
            await reader.readuntil(b"\r\n\r\n")
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            writer.write(head % len(lag) + lag)
            await writer.drain()
            writer.close()

        async with serving(say_lag) as lag_port:
            config: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
            config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
            config["rule_files"] = [str(FOLDER / name) for name in config["rule_files"]]
            for job in config["scrape_configs"]:
                if job["job_name"] == "groundwire":  # names of containers, which compose's own resolver knows
                    assert set(job.pop("dns_sd_configs")[0]["names"]) == set(targets)
                    assert job.pop("relabel_configs")[0]["target_label"] == "role"
                    job["static_configs"] = [
                        {"targets": [f"{HOST}:{at}"], "labels": {"role": role}}
                        for role, at in targets.items()
                    ]
                else:
                    at = {"redis": redis_port, "kafka": lag_port}[job["job_name"]]
                    job["static_configs"] = [{"targets": [f"{HOST}:{at}"]}]
            file.write_text(yaml.safe_dump(config))
            try:
                for at, each in servers.items():
                    each.start()
                    await asyncio.to_thread(each.wait_until, lambda at=at: listening(at), 30)
                yield port
            finally:
                for each in servers.values():
                    each.stop()

    panels = [
        query.expr.replace("$__rate_interval", "30s")
        for row in ROWS
        for panel in row.panels
        for query in panel.queries
    ]
    groups = yaml.safe_load((FOLDER / "rules/groundwire.yml").read_text())["groups"]
    selector = re.compile(r"\b(?:groundwire|redis|process|kafka)_\w+(?:\{[^}]*\})?")
    counts = [
        f"count({series})"
        for group in groups
        for rule in group["rules"]
        for series in selector.findall(rule["expr"])
    ]
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    waves, decided = count(1), set()

    async def send() -> None:
        """Send claims, responses, citations and broken records, and approve what earlier waves brought to review."""
        wave = next(waves)
        first = wave * 20
        claims = [good(number) for number in range(first, first + 10)]
        pages = ("ok", "gone", *(["hang"] if wave % 5 == 1 else []))
        cited = [
            good(first + at, content=f"Service {first + at} is described at {site.url}/{page}/{first}")
            for at, page in enumerate(pages, 10)
        ]
        await deployment.produce([*claims, *claims[:1], *cited, b"{"])
        quoted = {"transcript": "I cannot sleep at all.", "evidence": {"sleep": ["I cannot sleep"]}}
        answers = [response(number, **quoted) for number in range(first, first + 3)]
        await deployment.produce(answers, topic="llm-responses")
        for seen in list(deployment.seen["review"]):
            name = seen.json["decision_id"]
            if seen.json["facts"]["place"] == "free" and name not in decided:
                decided.add(name)
                if len(decided) % 3:
                    await office.act("approve", seen)

    # runs a command as its container does: without privileges, and with nothing to write to but its TMPDIR
    seal = """
mount --make-rprivate / && mount --bind / / && cd "$PWD" && mount -o remount,bind,ro / \
&& mount -t tmpfs -o mode=1777 tmpfs "$TMPDIR" \
&& exec setpriv --no-new-privs --bounding-set -all --inh-caps -all "$@"
"""
    # it takes root, and a kernel that gives namespaces away
    seals = os.geteuid() == 0 and all(map(shutil.which, ("unshare", "setpriv")))
    trial = ["unshare", "--mount", "mount", "--make-rprivate", "/"]
    seals = seals and subprocess.run(trial, capture_output=True, check=False).returncode == 0  # noqa: ASYNC221 - nothing else runs here

    def start(service: str, **more: str) -> Worker:
        """Start a service of docker-compose.yml by its own command, sealed as its container is where that can be."""
        program, *arguments = services[service]["command"]
        own = {"python": [sys.executable], "groundwire": [sys.executable, "-c", COMMAND]}[program]
        port, temporary = free_port(), deployment.folder / f"tmp-{service}"
        temporary.mkdir()
        more |= {"GROUNDWIRE_METRICS_PORT": str(port), "TMPDIR": str(temporary)}
        command = [*own, *arguments]
        if seals:
            command = ["unshare", "--mount", "sh", "-ec", seal, "sh", *command]
            more["PYTHONDONTWRITEBYTECODE"] = "1"
        log = deployment.folder / f"{service}.log"
        worker = Worker(command, deployment.settings(**more), log, port)
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
    workers = {role: start(role, **deployment.sealing) for role in ROLES}
    for worker in workers.values():
        await worker.ready()
    port = str(free_port())
    desk = start("console", GROUNDWIRE_CONSOLE_KEY="console", GROUNDWIRE_CONSOLE_PORT=port)
    targets = {role: worker.port for role, worker in (workers | {"console": desk}).items()}
    async with prometheus(targets) as server:
        behind = [  # deferred waits for pages that never come
            f"max(max_over_time({metric}{{role='deferred'}}[10m])) > 0"
            for metric in ("groundwire_lag_records", "groundwire_commit_age_seconds")
        ]
        left = [*panels, *counts, *behind]
        end = asyncio.get_running_loop().time() + 180
        while left and asyncio.get_running_loop().time() < end:
            await send()
            await asyncio.sleep(1)  # Prometheus scrapes every second
            left = [query for query in left if not await values(server, query)]
        assert left == []
        rules = [rule for group in (await ask(server, "rules"))["groups"] for rule in group["rules"]]
        assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
        assert await values(server, "count(up == 1)") == [len(targets) + 2]

        of_console = [part.replace("8700", port) for part in services["console"]["healthcheck"]["test"][1:]]
        assert all([await healthy(of_image, worker.port) for worker in workers.values()])
        assert await healthy(of_console, desk.port)
        first = workers["claims"]
        assert await asyncio.gather(first.stop(), desk.stop()) == [0, 0]
        assert not await healthy(of_image, first.port)
        assert not await healthy(of_console, desk.port)
