"""What `kustomize build` makes of the folders of deploy/kubernetes, as far as they use it; anything else is refused.

It spares Go where the program itself is not needed; a test compares the two (`make chart-tools`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

Manifest = dict[str, Any]

FOLDER: Final = Path(__file__).resolve().parents[1] / "kubernetes"

_KNOWN: Final = {
    *("apiVersion", "kind", "nameSuffix", "namespace"),
    *("resources", "components", "patches", "images", "labels"),
}
_SELECTORS: Final = {
    "StatefulSet": (("spec", "selector", "matchLabels"), ("spec", "template", "metadata", "labels")),
    "PodDisruptionBudget": (("spec", "selector", "matchLabels"),),
    "Service": (("spec", "selector"),),
}


def resolve(folder: Path, given: Sequence[Manifest] = ()) -> list[Manifest]:
    """Return the manifests of a kustomization. Raises: ValueError: it uses what this does not know."""
    config = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    if unknown := config.keys() - _KNOWN:
        raise ValueError(f"{folder}: {', '.join(sorted(unknown))}")
    found = [*given]
    for name in config.get("resources", []):
        path = folder / name
        found += resolve(path) if path.is_dir() else filter(None, yaml.safe_load_all(path.read_text("utf-8")))
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


def containers(manifest: Manifest) -> list[Manifest]:
    """Return the containers of a manifest's pods, those that run first included."""
    pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
    return [*pod.get("initContainers", ()), *pod.get("containers", ())]


def _transform(manifest: Manifest, config: Mapping[str, Any]) -> None:
    metadata, spec = manifest["metadata"], manifest.get("spec", {})
    if suffix := config.get("nameSuffix"):
        metadata["name"] += suffix
        if manifest["kind"] == "StatefulSet":
            spec["serviceName"] += suffix
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
        for spread in spec.get("template", {}).get("spec", {}).get("topologySpreadConstraints", ()):
            spread["labelSelector"]["matchLabels"].update(labels["pairs"])
    for image in config.get("images", []):
        for container in containers(manifest):
            if container["image"] == image["name"]:
                version = f"@{image['digest']}" if "digest" in image else f":{image['newTag']}"
                container["image"] = image["newName"] + version


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
