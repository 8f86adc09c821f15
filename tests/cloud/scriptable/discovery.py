"""The test cloud's description of itself: versions, groups and resources, plain and aggregated, and OpenAPI."""

from __future__ import annotations

from kube.json_type import Json
from tests.cloud.scriptable.resources import Resource, ResourceTable, Trait

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
"""The version of the real server that this one imitates."""
STATUS_VERBS = ("get", "patch", "update")
AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The form that clients ask for first; the one media type whose parameters a server echoes."""
AGGREGATED = frozenset(AGGREGATED_TYPE.split(";"))
"""Its parts, which clients put in an order of their own."""


def discovery(table: ResourceTable, path: str) -> Json | None:
    """The plain document at a discovery path, None when there is none."""
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
        case ["openapi", "v3"]:
            return {
                "paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in _places(table)}
            }
        case ["openapi", "v3", *place] if "/".join(place) in _places(table):
            return _openapi(table, "/".join(place))
        case _:
            return None


def aggregated_discovery(table: ResourceTable, path: str) -> Json:
    """The whole of /api or /apis in one document (apidiscovery.k8s.io/v2)."""
    core = path.strip("/") == "api"
    items = []
    for group in _groups(table):
        if core is not (group == ""):
            continue
        versions = [
            {
                "version": version,
                "resources": [_discovered(resource) for resource in table.in_version(group, version)],
                "freshness": "Current",
            }
            for version in _versions(table, group)
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": versions})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


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


def _discovered(resource: Resource) -> Json:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    entry: Json = {
        "resource": resource.name,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.kind.lower(),
        "verbs": list(resource.verbs),
    }
    if resource.short_name:
        entry["shortNames"] = [resource.short_name]
    if Trait.STATUS in resource.traits:
        status = {"subresource": "status", "responseKind": kind, "verbs": list(STATUS_VERBS)}
        entry["subresources"] = [status]
    return entry


def _places(table: ResourceTable) -> dict[str, tuple[str, str]]:
    return {
        f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
        for group, version in table.group_versions
    }


def _openapi(table: ResourceTable, place: str) -> Json:
    """As much OpenAPI as kubectl apply needs: that each kind exists, and that the server checks fields itself."""
    field_validation = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths: Json = {}
    schemas: Json = {}
    for resource in table.in_version(*_places(table)[place]):
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        scope = "namespaces/{namespace}/" if resource.namespaced else ""
        paths[f"/{place}/{scope}{resource.name}/{{name}}"] = {
            "patch": {
                "parameters": [field_validation],
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": kind,
                "responses": {},
            }
        }
        schemas[f"{resource.version}.{resource.kind}"] = {
            "type": "object",
            "x-kubernetes-group-version-kind": [kind],
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }
