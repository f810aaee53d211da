"""The manifests for Kubernetes, as their kustomizations put them together: valid, and true to what they run."""

import copy
import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.app import ROLES
from groundwire.config import Settings
from groundwire.console.settings import ConsoleSettings
from groundwire.messages.topics import TopicName
from groundwire.verify.models import load_model

Manifest = dict[str, Any]

_SELECTORS = {
    "Deployment": (("spec", "selector", "matchLabels"), ("spec", "template", "metadata", "labels")),
    "PodDisruptionBudget": (("spec", "selector", "matchLabels"),),
    "Service": (("spec", "selector"),),
}


def resolve(folder: Path, given: Sequence[Manifest] = ()) -> list[Manifest]:
    """Return what `kustomize build` makes of a folder, as far as ours use it: anything else is refused.

    No package brings kustomize itself here; where the real program is on the PATH, a test compares the two.
    """
    config = yaml.safe_load((folder / "kustomization.yaml").read_text())
    known = ["apiVersion", "kind", "nameSuffix", "namespace"]
    known += ["resources", "components", "patches", "images", "labels"]
    assert config.keys() <= {*known}, folder
    found = [*given]
    for name in config.get("resources", []):
        path = folder / name
        found += resolve(path) if path.is_dir() else filter(None, yaml.safe_load_all(path.read_text()))
    for name in config.get("components", []):
        found = resolve(folder / name, found)
    for patch in config.get("patches", []):
        kind, name = patch["target"]["kind"], patch["target"].get("name", ".*")
        matching = [m for m in found if m["kind"] == kind and re.fullmatch(name, m["metadata"]["name"])]
        if not matching:
            raise ValueError(f"a patch finds nothing: {patch['target']}")
        for manifest in matching:
            for operation in yaml.safe_load(patch["patch"]):
                _apply(manifest, copy.deepcopy(operation))
    for manifest in found:
        _transform(manifest, config)
    return found


def _transform(manifest: Manifest, config: Mapping[str, Any]) -> None:
    metadata = manifest["metadata"]
    metadata["name"] += config.get("nameSuffix", "")
    if "namespace" in config:
        metadata["namespace"] = config["namespace"]
    for labels in config.get("labels", []):
        if set(labels) != {"pairs", "includeSelectors"} or manifest["kind"] not in _SELECTORS:
            raise ValueError(f"labels of {manifest['kind']}: {labels}")
        for path in (("metadata", "labels"), *_SELECTORS[manifest["kind"]]):
            at = manifest
            for key in path:
                at = at[key]
            at.update(labels["pairs"])
    for image in config.get("images", []):
        for container in manifest.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            if container["image"] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"


def _apply(manifest: Manifest, operation: Mapping[str, Any]) -> None:
    *parents, last = operation["path"].removeprefix("/").split("/")
    at: Any = manifest
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at[key]
    if operation["op"] == "add" and last == "-":
        at.append(operation["value"])
    elif operation["op"] == "add" or (operation["op"] == "replace" and last in at):
        at[last] = operation["value"]
    elif operation["op"] == "remove":
        del at[last]
    else:
        raise ValueError(f"not a patch that can be made: {operation}")


FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
BUILT = {name: resolve(FOLDER / name) for name in ("base", "overlays/development", "overlays/production")}
NAMED = {
    name: {(m["kind"], m["metadata"]["name"]): m for m in resolve(FOLDER / name)}
    for name in ("base", "overlays/production", "overlays/cluster")
}


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {m["metadata"]["name"]: m.get("spec", m.get("data")) for m in manifests if m["kind"] == kind}


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    return {
        m["metadata"]["name"]: m["spec"]["template"] for m in manifests if m["kind"] in {"Deployment", "Job"}
    }


def container(pod: Manifest) -> Manifest:
    (only,) = pod["spec"]["containers"]
    return only


@pytest.mark.slow
def test_every_manifest_follows_the_schema_of_its_kind_and_has_no_unknown_field():
    if os.environ.get("CI") != "true":
        pytest.importorskip("kubernetes_validate", reason="not installed here: make setup")
    validate = importlib.import_module("kubernetes_validate").validate
    for manifests in (*BUILT.values(), list(NAMED["overlays/cluster"].values())):
        for manifest in manifests:
            if manifest["kind"] not in {
                "ScaledObject",
                "PodMonitor",
            }:  # schemas of operators are in no package
                for version in ("1.31", "1.34"):
                    validate(manifest, version, strict=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kustomize") is None, reason="kustomize is not installed: no package has it")
def test_the_real_kustomize_builds_the_same():
    for name, manifests in BUILT.items():
        command = ["kustomize", "build", str(FOLDER / name)]
        built = subprocess.run(command, capture_output=True, text=True, check=True)
        real = {(m["kind"], m["metadata"]["name"]): m for m in yaml.safe_load_all(built.stdout)}
        assert real == {(m["kind"], m["metadata"]["name"]): m for m in manifests}, name


def test_every_role_runs_as_the_image_starts_it_is_probed_and_has_selectors_that_find_its_own_pods_only():
    for manifests in BUILT.values():
        names = [(m["kind"], m["metadata"]["name"]) for m in manifests]
        assert len(set(names)) == len(names)
        commands = {name: container(pod) for name, pod in pods(manifests).items()}
        for role in ROLES:
            found = commands[f"groundwire-{role}"]
            assert [*found["command"], *found["args"]] == ["groundwire", "worker", role]
        assert commands["groundwire-topics"]["command"] == ["groundwire", "topics", "declare"]
        assert commands["groundwire-console"]["command"] == ["groundwire", "console"]
        labels = {name: pod["metadata"]["labels"] for name, pod in pods(manifests).items()}
        for kind in ("Deployment", "PodDisruptionBudget", "Service"):
            for name, spec in of_kind(manifests, kind).items():
                wanted = spec["selector"].get("matchLabels", spec["selector"])
                assert [pod for pod, has in labels.items() if wanted.items() <= has.items()] == [name]

        # the console finds every worker, also one that is not ready, and may connect to it
        console = container(pods(manifests)["groundwire-console"])
        value = next(v["value"] for v in console["env"] if v["name"] == "GROUNDWIRE_CONSOLE_WORKERS")
        services, policies = of_kind(manifests, "Service"), of_kind(manifests, "NetworkPolicy")
        targets = ConsoleSettings(workers=value).targets
        assert {target.host for target in targets} == {f"groundwire-{role}" for role in ROLES}
        for target in targets:
            spec = services[target.host]
            assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
            assert [(one["port"], one["targetPort"]) for one in spec["ports"]] == [(target.port, "metrics")]
        own = policies["groundwire-console"]["podSelector"]
        assert {"podSelector": own} in policies["groundwire"]["ingress"][0]["from"]
        workers = {"podSelector": policies["groundwire"]["podSelector"]}
        assert {"to": [workers], "ports": [{"port": "metrics"}]} in policies["groundwire-console"]["egress"]

        # probes ask for progress and readiness, and pods get longer to end than the worker's deadline
        (settings,) = of_kind(manifests, "ConfigMap").values()
        deadline = float(settings.get("GROUNDWIRE_SHUTDOWN_DEADLINE", Settings().shutdown_deadline))
        for name, pod in pods(manifests).items():
            found = container(pod)
            probes = {key: value["httpGet"] for key, value in found.items() if key.endswith("Probe")}
            if name.removeprefix("groundwire-") in ROLES:
                paths = {key.removesuffix("Probe"): probe["path"] for key, probe in probes.items()}
                assert paths == {"startup": "/live", "liveness": "/live", "readiness": "/ready"}
                assert pod["spec"]["terminationGracePeriodSeconds"] > deadline
            ports = {port["name"] for port in found.get("ports", ())}
            assert {probe["port"] for probe in probes.values()} <= ports


def test_pods_have_no_privileges_write_nothing_but_their_tmp_and_get_secrets_by_reference():
    secret = re.compile(r"SECRET|HASH_KEY|REDIS_URL")
    for manifests in BUILT.values():
        assert not of_kind(manifests, "Secret")
        plain = [name for data in of_kind(manifests, "ConfigMap").values() for name in data]
        assert not any(map(secret.search, plain))
        for pod in pods(manifests).values():
            spec, found = pod["spec"], container(pod)
            assert {"runAsNonRoot": True, "runAsUser": 10001}.items() <= spec["securityContext"].items()
            assert spec["automountServiceAccountToken"] is False
            safe = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False}
            security = found["securityContext"]
            assert safe.items() <= security.items()
            assert security["capabilities"] == {"drop": ["ALL"]}
            written = {mount["mountPath"] for mount in found["volumeMounts"] if not mount.get("readOnly")}
            assert written == {"/tmp"}  # noqa: S108 - of the container
            assert found["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in found["resources"]["limits"]
            for variable in found.get("env", []):
                if secret.search(variable["name"]):
                    assert variable["valueFrom"]["secretKeyRef"]["name"] == "groundwire"
                    assert "value" not in variable


def test_every_variable_is_a_setting_and_has_a_value_that_is_taken(monkeypatch: pytest.MonkeyPatch):
    known = {f"GROUNDWIRE_{name.upper()}" for name in Settings.model_fields}
    known |= {f"GROUNDWIRE_CONSOLE_{name.upper()}" for name in ConsoleSettings.model_fields}
    for manifests in BUILT.values():
        (data,) = of_kind(manifests, "ConfigMap").values()
        for name, pod in pods(manifests).items():
            secret = "redis://redis:6379/0" * 2
            own = {v["name"]: v.get("value", secret) for v in container(pod).get("env", [])}
            assert {*data, *own} <= known
            with monkeypatch.context() as patched:
                for variable, value in {**data, **own}.items():
                    patched.setenv(variable, value)
                Settings()
                if name == "groundwire-console" and "GROUNDWIRE_CONSOLE_PUBLIC_URL" in data:
                    ConsoleSettings()


def test_one_worker_of_a_role_may_be_evicted_at_a_time_and_only_lookups_reach_the_web():
    private = {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"}
    for manifests in BUILT.values():
        budgets = of_kind(manifests, "PodDisruptionBudget")
        evicted = {name: spec["maxUnavailable"] for name, spec in budgets.items()}
        assert evicted == {f"groundwire-{role}": 1 for role in ROLES}
        policies = of_kind(manifests, "NetworkPolicy")
        everybody = policies["groundwire"]
        assert everybody["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "groundwire"}}
        assert set(everybody["policyTypes"]) == {"Ingress", "Egress"}
        (web,) = policies["groundwire-web"]["podSelector"]["matchExpressions"]
        assert set(web["values"]) == {"deferred", "console"}
        (rule,) = policies["groundwire-web"]["egress"]
        assert private <= set(rule["to"][0]["ipBlock"]["except"])


def test_responses_reach_a_language_model_only_where_one_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    base, component = (os.path.relpath(FOLDER / name, tmp_path) for name in ("base", "components/model"))
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{base}]\ncomponents: [{component}]\n")
    found = {(m["kind"], m["metadata"]["name"]): m for m in resolve(tmp_path)}
    without = NAMED["base"]
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


def test_scaling_follows_the_lag_of_the_role_s_group_and_stays_within_its_partitions():
    production, settings = NAMED["overlays/production"], Settings()
    data = production["ConfigMap", "groundwire-settings"]["data"]
    topics = {
        "claims": TopicName.CLAIMS,
        "responses": TopicName.LLM_RESPONSES,
        "deferred": TopicName.DEFERRED,
    }
    scaled = of_kind(list(production.values()), "ScaledObject")
    assert scaled.keys() == {f"groundwire-{role}" for role in topics}
    for name, spec in scaled.items():
        role = name.removeprefix("groundwire-")
        assert spec["scaleTargetRef"] == {"name": name}
        assert "replicas" not in production["Deployment", name]["spec"]
        assert 1 <= spec["minReplicaCount"] <= spec["maxReplicaCount"] <= int(data["GROUNDWIRE_PARTITIONS"])
        (trigger,) = spec["triggers"]
        metadata, group = trigger["metadata"], settings.group_prefix + role
        read = (trigger["type"], metadata["consumerGroup"], metadata["topic"])
        assert read == ("kafka", group, settings.topic_prefix + topics[role])
        assert metadata["bootstrapServersFromEnv"] in data
        assert all(isinstance(value, str) for value in metadata.values()), "KEDA takes strings only"
    assert "replicas" in production["Deployment", "groundwire-reviews"]["spec"]
    monitor = production["PodMonitor", "groundwire"]["spec"]
    assert monitor["jobLabel"] == "app.kubernetes.io/name"
    (expression,) = monitor["selector"]["matchExpressions"]
    assert set(expression["values"]) == {*ROLES, "console"}
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert [rule["targetLabel"] for rule in endpoint["relabelings"]] == ["role"]


def test_nodes_of_the_redis_cluster_persist_have_the_names_of_the_settings_and_only_workers_reach_them():
    cluster = NAMED["overlays/cluster"]
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

    # only workers and the nodes themselves reach it
    policy = cluster["NetworkPolicy", "groundwire-redis"]["spec"]
    clients, nodes = policy["ingress"]
    (names,) = clients["from"][0]["podSelector"]["matchExpressions"]
    own = policy["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
    joining = cluster["Job", "groundwire-redis-join"]["spec"]["template"]["metadata"]["labels"]
    assert set(names["values"]) == {"groundwire", own, joining["app.kubernetes.io/name"]}
    assert nodes["from"] == [{"podSelector": policy["podSelector"]}]
    ports = {port["name"] for port in container(cluster["StatefulSet", own]["spec"]["template"])["ports"]}
    assert {one["port"] for rule in policy["ingress"] for one in rule["ports"]} == ports
