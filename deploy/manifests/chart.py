"""The templates of the Helm chart, from the manifests of deploy/kubernetes: what a value sets is put in by path.

`«...»` in a manifest becomes a template's action; a list's entry `«if ...»` or `«end»` becomes a line of its own.
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import yaml

from deploy.manifests.kustomize import FOLDER, Manifest, containers, resolve

CHART: Final = FOLDER.parent / "helm" / "groundwire"

_HEAD: Final = "{{/* Generated from deploy/kubernetes by `make generate`: change that. */}}\n"
_COMPONENTS: Final = {
    "keda": "keda",
    "model": "model",
    "monitoring": "monitoring",
    "redis-cluster": "redisCluster",
}
"""Components of deploy/kubernetes, and the value whose `enabled` adds them."""
_SCALED: Final = ("claims", "responses", "deferred")
"""Roles whose number KEDA sets where it is there."""


def templates(monitoring: Sequence[Manifest]) -> dict[str, str]:
    """Return the text of each generated template by its name; `monitoring`: what is generated of that component."""
    base = resolve(FOLDER / "base")
    known = {_key(manifest) for manifest in base}
    model = resolve(FOLDER / "components" / "model", copy.deepcopy(base))
    files: defaultdict[str, list[str]] = defaultdict(list)
    for manifest in base:
        name = manifest["metadata"]["name"]
        _mark(manifest, next(one for one in model if _key(one) == _key(manifest)))
        files[name].append(_template(manifest))
    found = {name: "---\n".join(parts) for name, parts in files.items()}
    for component, value in _COMPONENTS.items():
        found_there = resolve(FOLDER / "components" / component, resolve(FOLDER / "base"))
        added = {_key(one): one for one in found_there if _key(one) not in known}
        if component == "monitoring":
            added |= {_key(one): _with_address(one) for one in monitoring}
        text = "---\n".join(_template(_scaling(one)) for one in added.values())
        found[component] = f"{{{{- if .Values.{value}.enabled }}}}\n{text}{{{{- end }}}}\n"
    return {f"{name}.yaml": _HEAD + text for name, text in found.items()}


def default_values() -> dict[str, Any]:
    """Return the values with which the chart gives what the base of deploy/kubernetes is."""
    by_key = {_key(one): one for one in resolve(FOLDER / "base")}
    policy = by_key["NetworkPolicy", "groundwire"]["spec"]

    def container(kind: str, name: str) -> dict[str, Any]:
        return dict(by_key[kind, name]["spec"]["template"]["spec"]["containers"][0])

    return {
        "image": {"repository": "registry.example/groundwire", "tag": "", "digest": ""},
        "settings": by_key["ConfigMap", "groundwire-settings"]["data"],
        "replicas": {
            name.removeprefix("groundwire-"): one["spec"]["replicas"]
            for (kind, name), one in by_key.items()
            if kind == "StatefulSet"
        },
        "resources": {
            "workers": container("StatefulSet", "groundwire-claims")["resources"],
            "console": container("Deployment", "groundwire-console")["resources"],
        },
        "console": {"args": container("Deployment", "groundwire-console")["args"]},
        "network": {
            "prometheus": policy["ingress"][0]["from"][:1],
            "kafka": policy["egress"][1],
            "redis": policy["egress"][2],
            "ingress": by_key["NetworkPolicy", "groundwire-console"]["spec"]["ingress"][0]["from"],
        },
        "model": {"enabled": False, "api": "anthropic"},
        **{value: {"enabled": False} for value in _COMPONENTS.values() if value != "model"},
        "monitoring": {"enabled": False, "runbooks": ""},
    }


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _mark(manifest: Manifest, with_model: Manifest) -> None:
    """Put actions where values go."""
    kind, name = _key(manifest)
    spec = manifest.get("spec", {})
    for container in containers(manifest):
        container["image"] = '«include "groundwire.image" .»'
    if group := {"StatefulSet": "workers", "Deployment": "console"}.get(kind):
        for container in spec["template"]["spec"]["containers"]:
            container["resources"] = _block(f".Values.resources.{group}", 12)
    match kind, name:
        case "ConfigMap", _:
            manifest["data"] = _block(".Values.settings", 2)
        case "Job", _:  # which cannot be changed: another image has another one
            manifest["metadata"]["name"] += '-«include "groundwire.image" . | sha256sum | trunc 8»'
        case "StatefulSet", _:
            role = name.removeprefix("groundwire-")
            spec["replicas"] = f"«{'scaled' if role in _SCALED else 'set'} .Values.replicas.{role}»"
            container = spec["template"]["spec"]["containers"][0]
            own = with_model["spec"]["template"]["spec"]["containers"][0]["env"]
            if added := own[len(container["env"]) :]:
                for variable in added:
                    if variable["name"] == "GROUNDWIRE_MODEL_API":
                        variable["value"] = "«.Values.model.api»"
                container["env"] += ["«if .Values.model.enabled»", *added, "«end»"]
        case "Deployment", _:
            spec["template"]["spec"]["containers"][0]["args"] = _block(".Values.console.args", 12)
        case "NetworkPolicy", "groundwire":
            rule = spec["ingress"][0]
            rule["from"] = ["«each .Values.network.prometheus»", *rule["from"][1:]]
            spec["egress"][1:] = ["«one .Values.network.kafka»", "«one .Values.network.redis»"]
        case "NetworkPolicy", "groundwire-console":
            spec["ingress"][0]["from"] = _block(".Values.network.ingress", 8)


def _scaling(manifest: Manifest) -> Manifest:
    """Let a ScaledObject follow the values that say how many workers there are, and which topics."""
    if manifest["kind"] == "ScaledObject":
        spec = manifest["spec"]
        role = manifest["metadata"]["name"].removeprefix("groundwire-")
        spec["minReplicaCount"] = f"«.Values.replicas.{role}»"
        spec["maxReplicaCount"] = "«.Values.settings.GROUNDWIRE_PARTITIONS»"
        trigger = spec["triggers"][0]["metadata"]
        for key, setting in (("topic", "TOPIC"), ("consumerGroup", "GROUP")):
            own, name = trigger[key][: len("groundwire.")], trigger[key][len("groundwire.") :]
            trigger[key] = f'«.Values.settings.GROUNDWIRE_{setting}_PREFIX | default "{own}"»{name}'
    return manifest


def _with_address(manifest: Manifest) -> Manifest:
    """Put the address of the runbooks in front of each alert's path."""
    for group in manifest.get("spec", {}).get("groups", ()):
        for rule in group["rules"]:
            notes = rule.get("annotations", {})
            if "runbook" in notes:
                notes["runbook"] = f"«.Values.monitoring.runbooks»{notes['runbook']}"
    return manifest


def _block(value: str, indent: int) -> str:
    return f"«toYaml {value} | nindent {indent}»"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and repeats instead of naming anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    node: yaml.ScalarNode = dumper.represent_scalar(
        "tag:yaml.org,2002:str", data, style="|" if "\n" in data else None
    )
    return node


_Dumper.add_representer(str, _text)  # type: ignore[no-untyped-call]


def dump(manifest: Any) -> str:  # noqa: ANN401 - any part of a manifest
    """Return a manifest as YAML, its keys in their own order."""
    return str(yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9))


def _template(manifest: Manifest) -> str:
    # what Helm would read as an action, such as the labels of an alert, is written out
    text = re.sub(r"\{\{.*?\}\}", lambda found: f"{{{{ `{found[0]}` }}}}", dump(manifest))
    return "".join(_actions(text.splitlines()))


def _actions(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if found := re.fullmatch(r"(\s*)- '?«(if .*|end)»'?", line):
            yield f"{{{{- {found[2]} }}}}\n"
        elif found := re.fullmatch(r"(\s*)- '?«(each|one) (\S+)»'?", line):
            what = f"toYaml {found[3]}" if found[2] == "each" else f"list {found[3]} | toYaml"
            yield f"{found[1]}{{{{- {what} | nindent {len(found[1])} }}}}\n"
        elif found := re.fullmatch(r"(\s*replicas: )'?«(scaled|set) (.*)»'?", line):
            text = f"{found[1]}{{{{ {found[3]} }}}}\n"
            scaled = found[2] == "scaled"
            yield f"{{{{- if not .Values.keda.enabled }}}}\n{text}{{{{- end }}}}\n" if scaled else text
        elif found := re.fullmatch(r"(\s*\S+:) '?«(toYaml .*)»'?", line):
            yield f"{found[1]} {{{{- {found[2]} }}}}\n"
        else:
            yield re.sub(r"'?«(.*?)»'?", lambda found: f"{{{{ {found[1]} }}}}", line) + "\n"
