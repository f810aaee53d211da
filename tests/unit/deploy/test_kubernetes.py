"""The manifests for Kubernetes, as their kustomizations put them together: valid, and true to what they run."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from agents.app import ROLES
from groundwire.config import Settings
from groundwire.console.settings import ConsoleSettings
from groundwire.messages.topics import TopicName
from groundwire.verify.models import load_model
from tests.unit.deploy.kustomized import Manifest, resolve

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "kubernetes"
BUILT = ("base", "overlays/development", "overlays/production")
OTHERS = {"ScaledObject", "PodMonitor"}
"""Kinds that operators bring: their schemas are in no package."""

INPUTS = {
    "claims": TopicName.CLAIMS,
    "responses": TopicName.LLM_RESPONSES,
    "deferred": TopicName.DEFERRED,
    "reviews": TopicName.REVIEW_DECISIONS,
}


@pytest.fixture(scope="module", params=BUILT)
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    return resolve(FOLDER / request.param)


@pytest.fixture(scope="module")
def production() -> dict[tuple[str, str], Manifest]:
    return {(m["kind"], m["metadata"]["name"]): m for m in resolve(FOLDER / "overlays/production")}


def pods(manifests: list[Manifest]) -> list[tuple[str, Manifest]]:
    return [
        (m["metadata"]["name"], m["spec"]["template"])
        for m in manifests
        if m["kind"] in {"Deployment", "Job"}
    ]


def container(pod: Manifest) -> Manifest:
    (only,) = pod["spec"]["containers"]
    found: Manifest = only
    return found


@pytest.mark.parametrize("version", ["1.31", "1.34"])
def test_every_manifest_follows_the_schema_of_its_kind_and_names_no_field_that_is_none(
    manifests: list[Manifest], version: str
):
    if os.environ.get("CI") != "true":
        pytest.importorskip("kubernetes_validate", reason="not installed here: make setup")
    kubernetes_validate = importlib.import_module("kubernetes_validate")
    for manifest in manifests:
        if manifest["kind"] not in OTHERS:
            kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.skipif(shutil.which("kustomize") is None, reason="kustomize is not installed: no package has it")
@pytest.mark.parametrize("name", BUILT)
def test_the_real_kustomize_builds_the_same(name: str):
    built = subprocess.run(
        ["kustomize", "build", str(FOLDER / name)], capture_output=True, text=True, check=True
    )
    real = {(m["kind"], m["metadata"]["name"]): m for m in yaml.safe_load_all(built.stdout)}
    assert real == {(m["kind"], m["metadata"]["name"]): m for m in resolve(FOLDER / name)}


def test_no_name_is_given_twice(manifests: list[Manifest]):
    names = [(m["kind"], m["metadata"]["name"]) for m in manifests]
    assert len(set(names)) == len(names)


def test_every_role_runs_as_the_image_starts_it(manifests: list[Manifest]):
    commands = {name: container(pod) for name, pod in pods(manifests)}
    for role in ROLES:
        found = commands[f"groundwire-{role}"]
        assert [*found["command"], *found["args"]] == ["groundwire", "worker", role]
    assert commands["groundwire-topics"]["command"] == ["groundwire", "topics", "declare"]
    assert commands["groundwire-console"]["command"] == ["groundwire", "console"]


def test_a_selector_finds_the_pods_of_its_own_role_and_no_others(manifests: list[Manifest]):
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(manifests)}
    for manifest in manifests:
        name, spec = manifest["metadata"]["name"], manifest.get("spec", {})
        if manifest["kind"] in {"Deployment", "PodDisruptionBudget", "Service"}:
            wanted = spec["selector"].get("matchLabels", spec["selector"])
            assert [pod for pod, has in labels.items() if wanted.items() <= has.items()] == [name]


def test_the_console_finds_every_worker_also_one_that_is_not_ready_and_is_let_through_to_it(
    manifests: list[Manifest],
):
    console = next(container(pod) for name, pod in pods(manifests) if name == "groundwire-console")
    value = next(v["value"] for v in console["env"] if v["name"] == "GROUNDWIRE_CONSOLE_WORKERS")
    services = {m["metadata"]["name"]: m["spec"] for m in manifests if m["kind"] == "Service"}
    targets = ConsoleSettings(workers=value).targets
    assert {target.host for target in targets} == {f"groundwire-{role}" for role in ROLES}
    for target in targets:
        spec = services[target.host]
        assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
        assert [(one["port"], one["targetPort"]) for one in spec["ports"]] == [(target.port, "metrics")]
    policies = {m["metadata"]["name"]: m["spec"] for m in manifests if m["kind"] == "NetworkPolicy"}
    own = policies["groundwire-console"]["podSelector"]
    assert {"podSelector": own} in policies["groundwire"]["ingress"][0]["from"]
    workers = {"podSelector": policies["groundwire"]["podSelector"]}
    assert {"to": [workers], "ports": [{"port": "metrics"}]} in policies["groundwire-console"]["egress"]


def test_probes_look_at_progress_and_readiness_at_assignment(manifests: list[Manifest]):
    for name, pod in pods(manifests):
        found = container(pod)
        if name.removeprefix("groundwire-") in ROLES:
            paths = {probe: found[probe]["httpGet"]["path"] for probe in found if probe.endswith("Probe")}
            assert paths == {"startupProbe": "/live", "livenessProbe": "/live", "readinessProbe": "/ready"}
        for probe in (value for key, value in found.items() if key.endswith("Probe")):
            assert probe["httpGet"]["port"] in {port["name"] for port in found["ports"]}


def test_pods_get_longer_to_end_than_the_worker_s_own_deadline(manifests: list[Manifest]):
    settings = next(m["data"] for m in manifests if m["kind"] == "ConfigMap")
    deadline = float(settings.get("GROUNDWIRE_SHUTDOWN_DEADLINE", Settings().shutdown_deadline))
    for name, pod in pods(manifests):
        if name.removeprefix("groundwire-") in ROLES:
            assert pod["spec"]["terminationGracePeriodSeconds"] > deadline


def test_pods_are_nobody_special_and_write_nothing_but_their_tmp(manifests: list[Manifest]):
    for _, pod in pods(manifests):
        spec, found = pod["spec"], container(pod)
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["automountServiceAccountToken"] is False
        security = found["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        written = {mount["mountPath"] for mount in found["volumeMounts"] if not mount.get("readOnly")}
        assert written == {"/tmp"}  # noqa: S108 - of the container
        assert found["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in found["resources"]["limits"]


def test_what_is_secret_comes_by_reference_and_nothing_here_is_one(manifests: list[Manifest]):
    assert not any(m["kind"] == "Secret" for m in manifests)
    secret = re.compile(r"SECRET|HASH_KEY|REDIS_URL")
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap":
            assert not any(secret.search(name) for name in manifest["data"])
    for _, pod in pods(manifests):
        for variable in container(pod).get("env", []):
            if secret.search(variable["name"]):
                assert variable["valueFrom"]["secretKeyRef"]["name"] == "groundwire"
                assert "value" not in variable


def test_every_variable_is_a_setting_and_has_a_value_that_is_taken(
    manifests: list[Manifest], monkeypatch: pytest.MonkeyPatch
):
    known = {f"GROUNDWIRE_{name.upper()}" for name in Settings.model_fields}
    known |= {f"GROUNDWIRE_CONSOLE_{name.upper()}" for name in ConsoleSettings.model_fields}
    data = next(m["data"] for m in manifests if m["kind"] == "ConfigMap")
    for name, pod in pods(manifests):
        own = {v["name"]: v.get("value", "redis://redis:6379/0" * 2) for v in container(pod).get("env", [])}
        assert {*data, *own} <= known
        with monkeypatch.context() as patched:
            for variable, value in {**data, **own}.items():
                patched.setenv(variable, value)
            Settings()
            if name == "groundwire-console" and "GROUNDWIRE_CONSOLE_PUBLIC_URL" in data:
                ConsoleSettings()


def test_all_that_may_be_evicted_is_one_worker_of_each_role_at_a_time(manifests: list[Manifest]):
    budgets = {m["metadata"]["name"]: m["spec"] for m in manifests if m["kind"] == "PodDisruptionBudget"}
    assert budgets.keys() == {f"groundwire-{role}" for role in ROLES}
    assert all(spec["maxUnavailable"] == 1 for spec in budgets.values())


def test_only_who_looks_things_up_gets_out_to_the_web_and_nowhere_inside(manifests: list[Manifest]):
    policies = {m["metadata"]["name"]: m["spec"] for m in manifests if m["kind"] == "NetworkPolicy"}
    everybody = policies["groundwire"]
    assert everybody["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "groundwire"}}
    assert set(everybody["policyTypes"]) == {"Ingress", "Egress"}
    (web,) = policies["groundwire-web"]["podSelector"]["matchExpressions"]
    assert set(web["values"]) == {"deferred", "console"}
    (rule,) = policies["groundwire-web"]["egress"]
    assert {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"} <= set(
        rule["to"][0]["ipBlock"]["except"]
    )


def test_responses_get_out_to_a_language_model_only_where_one_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    base, component = (
        os.path.relpath(FOLDER / name, tmp_path.resolve()) for name in ("base", "components/model")
    )
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{base}]\ncomponents: [{component}]\n")
    found = {(m["kind"], m["metadata"]["name"]): m for m in resolve(tmp_path)}
    without = {(m["kind"], m["metadata"]["name"]): m for m in resolve(FOLDER / "base")}
    assert found.keys() - without.keys() == {("NetworkPolicy", "groundwire-model")}
    policy = found["NetworkPolicy", "groundwire-model"]["spec"]
    assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "responses"
    assert policy["policyTypes"] == ["Egress"]
    web = without["NetworkPolicy", "groundwire-web"]["spec"]["egress"][0]["to"]
    assert policy["egress"] == [{"to": web, "ports": [{"port": 443}]}]
    changed = {name for name, manifest in without.items() if manifest != found[name]}
    assert changed == {("Deployment", "groundwire-responses")}
    pod = found["Deployment", "groundwire-responses"]["spec"]["template"]
    for variable in container(pod)["env"]:
        if variable["name"] == "GROUNDWIRE_MODEL_KEY":
            assert variable["valueFrom"]["secretKeyRef"] == {"name": "groundwire", "key": "model-key"}
        if variable["name"].startswith("GROUNDWIRE_MODEL_"):
            monkeypatch.setenv(variable["name"], variable.get("value", "key"))
    assert load_model() is not None


def test_scaling_goes_by_the_lag_of_the_role_s_own_group_and_never_beyond_its_partitions(
    production: dict[tuple[str, str], Manifest],
):
    data = production["ConfigMap", "groundwire-settings"]["data"]
    settings = Settings()
    scaled = {name: m["spec"] for (kind, name), m in production.items() if kind == "ScaledObject"}
    assert scaled.keys() == {f"groundwire-{role}" for role in ("claims", "responses", "deferred")}
    for name, spec in scaled.items():
        role = name.removeprefix("groundwire-")
        assert spec["scaleTargetRef"] == {"name": name}
        assert "replicas" not in production["Deployment", name]["spec"], "who scales says how many"
        assert 1 <= spec["minReplicaCount"] <= spec["maxReplicaCount"] <= int(data["GROUNDWIRE_PARTITIONS"])
        (trigger,) = spec["triggers"]
        metadata = trigger["metadata"]
        assert (trigger["type"], metadata["consumerGroup"], metadata["topic"]) == (
            "kafka",
            settings.group_prefix + role,
            settings.topic_prefix + INPUTS[role],
        )
        assert metadata["bootstrapServersFromEnv"] in data
        assert all(isinstance(value, str) for value in metadata.values()), "KEDA takes strings only"
    assert "replicas" in production["Deployment", "groundwire-reviews"]["spec"]


def test_pods_are_scraped_under_the_names_that_rules_and_dashboard_ask_for(
    production: dict[tuple[str, str], Manifest],
):
    spec = production["PodMonitor", "groundwire"]["spec"]
    assert spec["jobLabel"] == "app.kubernetes.io/name"
    (expression,) = spec["selector"]["matchExpressions"]
    assert set(expression["values"]) == {*ROLES, "console"}
    (endpoint,) = spec["podMetricsEndpoints"]
    assert [rule["targetLabel"] for rule in endpoint["relabelings"]] == ["role"]


@pytest.fixture(scope="module")
def cluster() -> dict[tuple[str, str], Manifest]:
    return {(m["kind"], m["metadata"]["name"]): m for m in resolve(FOLDER / "overlays/cluster")}


@pytest.mark.parametrize("version", ["1.31", "1.34"])
def test_what_brings_a_redis_cluster_follows_the_schema_of_its_kind(
    cluster: dict[tuple[str, str], Manifest], version: str
):
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="not installed here: make setup")
    for manifest in cluster.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_nodes_of_the_redis_cluster_keep_what_they_are_given_and_are_named_as_the_settings_address_says(
    cluster: dict[tuple[str, str], Manifest],
):
    spec = cluster["StatefulSet", "groundwire-redis"]["spec"]
    arguments = container(spec["template"])["args"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    wanted = {"--appendonly": "yes", "--maxmemory-policy": "noeviction", "--cluster-enabled": "yes"}
    assert wanted.items() <= options.items()
    assert options["--cluster-require-full-coverage"] == "no"
    (claim,) = spec["volumeClaimTemplates"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(spec["template"])["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == options["--dir"]
    service = cluster["Service", spec["serviceName"]]["spec"]
    assert service["selector"] == spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    head = (FOLDER / "components/redis-cluster/kustomization.yaml").read_text()
    (url,) = re.findall(r"redis-url=(\S+)", head)
    hosts = [node.partition(":")[0] for node in url.removeprefix("redis+cluster://").split(",")]
    assert hosts == [f"groundwire-redis-{number}.{spec['serviceName']}" for number in range(3)]


def test_the_workers_and_the_nodes_themselves_reach_the_redis_cluster_and_nobody_else_does(
    cluster: dict[tuple[str, str], Manifest],
):
    policy = cluster["NetworkPolicy", "groundwire-redis"]["spec"]
    clients, nodes = policy["ingress"]
    (names,) = clients["from"][0]["podSelector"]["matchExpressions"]
    own = policy["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
    joining = cluster["Job", "groundwire-redis-join"]["spec"]["template"]["metadata"]["labels"]
    assert set(names["values"]) == {"groundwire", own, joining["app.kubernetes.io/name"]}
    assert nodes["from"] == [{"podSelector": policy["podSelector"]}]
    ports = {port["name"] for port in container(cluster["StatefulSet", own]["spec"]["template"])["ports"]}
    assert {one["port"] for rule in policy["ingress"] for one in rule["ports"]} == ports
