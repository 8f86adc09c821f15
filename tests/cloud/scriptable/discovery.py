"""The test cloud's discovery: versions, groups and resources."""

from __future__ import annotations

from kube.json_type import Json
from tests.cloud.scriptable.resources import ResourceTable, Trait

VERSION: Json = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0-scriptable",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
"""The version of the imitated real server."""
STATUS_VERBS = ("get", "patch", "update")


def discovery(table: ResourceTable, path: str) -> Json | None:
    """Return the plain document at a discovery path, None if there is none."""
    match path.strip("/").split("/"):
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(table, group) for group in _groups(table) if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group] if group in _groups(table):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(table, group)}
        case ["api", version] if ("", version) in table.group_versions:
            return _resource_list(table, "", version)
        case ["apis", group, version] if (group, version) in table.group_versions:
            return _resource_list(table, group, version)
        case _:
            return None


def _groups(table: ResourceTable) -> list[str]:
    return list(dict.fromkeys(group for group, _ in table.group_versions))


def _versions(table: ResourceTable, group: str) -> list[str]:
    return [version for each, version in table.group_versions if each == group]


def _group(table: ResourceTable, group: str) -> Json:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version} for version in _versions(table, group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(table: ResourceTable, group: str, version: str) -> Json:
    resources: list[Json] = []
    for resource in table.in_version(group, version):
        entry: Json = {
            "name": resource.name,
            "singularName": resource.kind.lower(),
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short_name:
            entry["shortNames"] = [resource.short_name]
        resources.append(entry)
        if Trait.STATUS in resource.traits:
            name = f"{resource.name}/status"
            resources.append({**entry, "name": name, "singularName": "", "verbs": list(STATUS_VERBS)})
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }
