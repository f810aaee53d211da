"""What `kustomize build` makes of the folders under deploy/kubernetes, as far as they use it.

No package brings kustomize itself here, so this is a small resolver of its own: base, components, name suffixes,
labels, images, namespace, and patches by JSON pointer. Anything else is refused. Where the real program is on the PATH,
a test compares the two.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

_RESOURCES = {"resources", "components", "patches", "images", "labels"}
_KEYS = {"apiVersion", "kind", "nameSuffix", "namespace", *_RESOURCES}
_SELECTORS = {
    "Deployment": (("spec", "selector", "matchLabels"), ("spec", "template", "metadata", "labels")),
    "PodDisruptionBudget": (("spec", "selector", "matchLabels"),),
    "Service": (("spec", "selector"),),
}


def resolve(folder: Path) -> list[Manifest]:
    """Return the manifests of a folder. Raises: ValueError for what this resolver does not know."""
    return list(_build(folder, []))


def _build(folder: Path, given: list[Manifest]) -> list[Manifest]:
    config = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := set(config) - _KEYS:
        raise ValueError(f"{folder}: {sorted(unknown)}")
    found = [*given]
    for name in config.get("resources", []):
        path = folder / name
        documents = [] if path.is_dir() else yaml.safe_load_all(path.read_text())
        found += _build(path, []) if path.is_dir() else [one for one in documents if one]
    for name in config.get("components", []):
        found = _build(folder / name, found)
    for patch in config.get("patches", []):
        _patch(found, patch)
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


def _patch(found: list[Manifest], patch: Mapping[str, Any]) -> None:
    kind, name = patch["target"]["kind"], patch["target"].get("name", ".*")
    matching = [m for m in found if m["kind"] == kind and re.fullmatch(name, m["metadata"]["name"])]
    if not matching:
        raise ValueError(f"a patch finds nothing: {patch['target']}")
    for manifest in matching:
        for operation in yaml.safe_load(patch["patch"]):
            _apply(manifest, copy.deepcopy(operation))


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
