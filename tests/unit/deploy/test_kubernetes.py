"""The manifests for Kubernetes, as their kustomizations put them together: valid, and true to what they run."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agents.app import ROLES
from deploy.embedded.process import find_program
from deploy.grafana.__main__ import dashboard
from deploy.manifests.__main__ import generated
from deploy.manifests.chart import CHART
from deploy.manifests.kustomize import FOLDER, Manifest, containers, resolve
from groundwire.config import Settings
from groundwire.console.settings import ConsoleSettings
from groundwire.messages.topics import TopicName
from groundwire.verify.models import load_model
from tests.services.fixtures import or_skip

BUILT = {name: resolve(FOLDER / name) for name in ("base", "overlays/development", "overlays/production")}
NAMED = {
    name: {(m["kind"], m["metadata"]["name"]): m for m in resolve(FOLDER / name)}
    for name in ("base", "overlays/production", "overlays/cluster")
}


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {m["metadata"]["name"]: m.get("spec", m.get("data")) for m in manifests if m["kind"] == kind}


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    return {
        m["metadata"]["name"]: m["spec"]["template"]
        for m in manifests
        if m["kind"] in {"StatefulSet", "Deployment", "Job"}
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
                "PrometheusRule",
            }:  # schemas of operators are in no package
                for version in ("1.31", "1.34"):
                    validate(manifest, version, strict=True)


def chart_tool(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    return (
        str(beside) if beside.exists() else or_skip(lambda: find_program(name, f"{name}: make chart-tools"))
    )


@pytest.mark.slow
def test_the_real_kustomize_builds_the_same():
    kustomize = chart_tool("kustomize")
    for name, manifests in BUILT.items():
        command = [kustomize, "build", str(FOLDER / name)]
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
        for kind in ("StatefulSet", "Deployment", "PodDisruptionBudget", "Service"):
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
        settings = of_kind(manifests, "ConfigMap")["groundwire-settings"]
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
        for name, pod in pods(manifests).items():
            spec, found = pod["spec"], container(pod)
            # who takes over the console has no key of the gate, and the other way round
            own = "groundwire-console" if name == "groundwire-console" else "groundwire"
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
                    assert variable["valueFrom"]["secretKeyRef"]["name"] == own
                    assert "value" not in variable
            secrets = {each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each}
            assert secrets <= {f"{own}-keys", f"{own}-seal"}


def test_every_variable_is_a_setting_and_has_a_value_that_is_taken(monkeypatch: pytest.MonkeyPatch):
    known = {f"GROUNDWIRE_{name.upper()}" for name in Settings.model_fields}
    known |= {f"GROUNDWIRE_CONSOLE_{name.upper()}" for name in ConsoleSettings.model_fields}
    for manifests in BUILT.values():
        data = of_kind(manifests, "ConfigMap")["groundwire-settings"]
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


def test_a_worker_keeps_its_static_id_and_those_of_a_role_are_spread_over_nodes_and_zones():
    for manifests in BUILT.values():
        services = of_kind(manifests, "Service")
        workers = of_kind(manifests, "StatefulSet")
        assert workers.keys() == {f"groundwire-{role}" for role in ROLES}
        for name, spec in workers.items():
            assert services[spec["serviceName"]]["selector"] == spec["selector"]["matchLabels"], name
            instance = {v["name"]: v for v in container(spec["template"])["env"]}["GROUNDWIRE_INSTANCE_ID"]
            assert instance["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
            spread = spec["template"]["spec"]["topologySpreadConstraints"]
            assert [one["topologyKey"].rpartition("/")[2] for one in spread] == ["hostname", "zone"]
            assert all(one["labelSelector"] == spec["selector"] for one in spread)


def test_the_seal_key_reaches_every_worker_in_memory_and_as_a_file_that_nobody_else_can_read(tmp_path):
    sets = [one for one in BUILT["overlays/production"] if one["kind"] == "StatefulSet"]
    for number, pod in enumerate(one["spec"]["template"]["spec"] for one in sets):
        (first,) = pod["initContainers"]
        secret, private = tmp_path / f"{number}-secret", tmp_path / f"{number}-private"
        secret.mkdir()
        private.mkdir()
        script = first["command"][-1].replace("/secret", str(secret)).replace("/run/seal", str(private))
        subprocess.run(["sh", "-c", script], check=True)
        (secret / "gate.toml").write_text("private")
        subprocess.run(["sh", "-c", script], check=True)
        assert (private / "gate.toml").stat().st_mode & 0o777 == 0o600
        volumes = {one["name"]: one for one in pod["volumes"]}
        assert volumes["seal-secret"]["secret"]["optional"]
        assert volumes["seal-key"]["emptyDir"]["medium"] == "Memory"
        mounts = {one["name"]: one for one in pod["containers"][0]["volumeMounts"]}
        assert mounts["seal-key"] == {"name": "seal-key", "mountPath": "/run/seal", "readOnly": True}


def test_images_of_overlays_to_copy_are_named_by_digest():
    for name in ("overlays/production", "overlays/cluster"):
        own = {
            found["image"]
            for manifest in NAMED[name].values()
            for found in containers(manifest)
            if found["image"].startswith("registry.example/")
        }
        assert own
        assert all(re.fullmatch(r"[a-z./]+@sha256:[0-9a-f]{64}", image) for image in own)


def test_the_monitoring_component_installs_every_alert_and_the_dashboard():
    rules = FOLDER.parent / "prometheus" / "rules" / "groundwire.yml"
    production = NAMED["overlays/production"]
    assert production["PrometheusRule", "groundwire"]["spec"] == yaml.safe_load(rules.read_text())
    board = production["ConfigMap", "groundwire-dashboard"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    (shown,) = map(json.loads, board["data"].values())
    assert shown == dashboard()


def test_what_is_generated_from_the_manifests_is_as_they_are():
    for path, text in generated().items():
        assert path.read_text("utf-8") == text, f"{path.name}: python -m deploy.manifests write"


@pytest.mark.slow
def test_helm_finds_nothing_wrong_and_the_chart_renders_what_kustomize_builds(tmp_path: Path):
    helm = chart_tool("helm")
    image = "registry.example/groundwire@sha256:" + "0" * 64
    repository, _, digest = image.partition("@")
    of = ("--kube-version", "1.31.0")

    def rendered(**values: object) -> dict[tuple[str, str], Manifest]:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump({"image": {"repository": repository, "digest": digest}, **values}))
        for command in (["lint", "--strict", *of], ["template", "groundwire", *of]):
            done = subprocess.run(
                [helm, *command, CHART, "--values", file], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
        found = {(m["kind"], m["metadata"]["name"]): m for m in yaml.safe_load_all(done.stdout) if m}
        (job,) = (name for kind, name in found if kind == "Job" and name.startswith("groundwire-topics-"))
        found["Job", "groundwire-topics"] = topics = found.pop(("Job", job))
        topics["metadata"]["name"] = "groundwire-topics"  # which the hash of the image follows
        return found

    def built(*components: str) -> dict[tuple[str, str], Manifest]:
        base = os.path.relpath(FOLDER / "base", tmp_path)
        paths = [os.path.relpath(FOLDER / "components" / name, tmp_path) for name in components]
        config = {"resources": [base], "components": paths}
        config["images"] = [{"name": "groundwire", "newName": repository, "digest": digest}]
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(config))
        return {(m["kind"], m["metadata"]["name"]): m for m in resolve(tmp_path)}

    assert rendered() == built()
    on = {"enabled": True}
    everything = rendered(keda=on, monitoring=on, redisCluster=on, model=on)
    assert everything == built("keda", "monitoring", "redis-cluster", "model")

    # a value reaches what it names
    changed = rendered(
        replicas={"claims": 5},
        settings={"GROUNDWIRE_BROKERS": "b:9092", "GROUNDWIRE_PARTITIONS": "16"},
        keda=on,
        console={"args": ["--one-time-link"]},
        monitoring=on | {"runbooks": "https://git.example/gate/"},
    )
    (alert, *_) = changed["PrometheusRule", "groundwire"]["spec"]["groups"][0]["rules"]
    assert alert["annotations"]["runbook"].startswith("https://git.example/gate/docs/run/operating.md#")
    assert changed["ConfigMap", "groundwire-settings"]["data"]["GROUNDWIRE_BROKERS"] == "b:9092"
    scaled = changed["ScaledObject", "groundwire-claims"]["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (5, 16)
    console = changed["Deployment", "groundwire-console"]["spec"]["template"]
    assert container(console)["args"] == ["--one-time-link"]
    refused = subprocess.run([helm, "template", CHART, *of], capture_output=True, text=True, check=False)
    assert "set image.digest" in refused.stderr


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
        # whatever goes out goes to a port of somebody who is named
        assert all(rule["to"] and rule["ports"] for rule in everybody["egress"])
        assert [rule["ports"][0]["port"] for rule in everybody["egress"]] == [53, 9092, 6379]
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
    assert changed == {("StatefulSet", "groundwire-responses")}
    pod = found["StatefulSet", "groundwire-responses"]["spec"]["template"]
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
        assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name}
        assert "replicas" not in production["StatefulSet", name]["spec"]
        assert 1 <= spec["minReplicaCount"] <= spec["maxReplicaCount"] <= int(data["GROUNDWIRE_PARTITIONS"])
        (trigger,) = spec["triggers"]
        metadata, group = trigger["metadata"], settings.group_prefix + role
        read = (trigger["type"], metadata["consumerGroup"], metadata["topic"])
        assert read == ("kafka", group, settings.topic_prefix + topics[role])
        assert metadata["bootstrapServersFromEnv"] in data
        assert all(isinstance(value, str) for value in metadata.values()), "KEDA takes strings only"
    assert "replicas" in production["StatefulSet", "groundwire-reviews"]["spec"]
    monitor = production["PodMonitor", "groundwire"]["spec"]
    assert monitor["jobLabel"] == "app.kubernetes.io/name"
    (expression,) = monitor["selector"]["matchExpressions"]
    assert set(expression["values"]) == {*ROLES, "console"}
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert [rule["targetLabel"] for rule in endpoint["relabelings"]] == ["role", "deployment"]


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
    hosts = [node.partition(":")[0] for node in url.removeprefix("redis+cluster://:PASSWORD@").split(",")]
    assert hosts == [f"groundwire-redis-{number}.{spec['serviceName']}" for number in range(3)]

    # nodes take the password of the Secret, and so does who joins them
    assert options["--requirepass"] == options["--masterauth"] == "$(REDISCLI_AUTH)"
    job = cluster["Job", "groundwire-redis-join"]["spec"]["template"]
    for pod in (spec["template"], job):
        (login,) = [one for one in container(pod)["env"] if one["name"] == "REDISCLI_AUTH"]
        assert login["valueFrom"]["secretKeyRef"] == {"name": "groundwire-redis", "key": "password"}

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
