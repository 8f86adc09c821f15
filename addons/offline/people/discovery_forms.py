"""The plain documents of API discovery, which older clients read, made of the aggregated ones."""

from __future__ import annotations

from typing import Any

from kube.errors import not_acceptable
from kube.json_type import Json
from kube.schemas.recoded import recoded
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object, write_json
from kube.wire.negotiation import acceptable

AGGREGATED_KIND = "APIGroupDiscoveryList"
_JSON = codec_for(Encoding.JSON)
_PARAMETERS = frozenset({f"as={AGGREGATED_KIND}", "g=apidiscovery.k8s.io", "v=v2"})
_DEEPEST = {"api": 2, "apis": 3}
"""The steps of the longest path of discovery below each root."""


def root_of(path: str) -> str:
    """Return the path of the aggregated document that has a path's document; "" for a path of no discovery."""
    _, *steps = path.split("/")
    return f"/{steps[0]}" if len(steps) <= _DEEPEST.get(steps[0], 0) else ""


def in_form(path: str, content_type: str, body: bytes, accept: str | None) -> tuple[str, bytes] | None:
    """Return the document of a path in a form that the client accepts, with its content type.

    `body` is what the cloud answered at the path's root: the aggregated document, or an older server's plain one. None
    if it does not have the document. StatusError 406 if no form is acceptable; ValueError and LookupError for an
    unreadable document.
    """
    root = root_of(path)
    has_all, is_root = AGGREGATED_KIND in content_type, path == (root or path)
    if has_all and is_root and (aggregated := _aggregated_in(accept)):
        if aggregated[0] is Encoding.JSON:
            return content_type, body
        packed = recoded(Encoded.read(_JSON, body), aggregated[0])
        return content_type.replace(Encoding.JSON, aggregated[0]), packed.body()
    plain = [each.encoding for each in acceptable(accept) if not each.kind]
    encodings = [each for each in plain if root or each is Encoding.JSON]  # /version has no protobuf
    if not encodings:
        raise not_acceptable(f"{path} comes as {'JSON or protobuf' if root else 'JSON'}")
    if not has_all and is_root and encodings[0] is Encoding.JSON:
        return content_type, body
    document = plain_document(path, body) if has_all else Encoded.read(_JSON, body) if is_root else None
    if document is None:
        return None
    made = recoded(document, encodings[0])
    return made.codec.content_type, made.body()


def _aggregated_in(accept: str | None) -> list[Encoding]:
    """Return the encodings in which a client accepts the aggregated document, in the order of the header."""
    clauses = [clause.replace(" ", "").split(";") for clause in (accept or "").split(",")]
    given = (clause[0] for clause in clauses if {*clause} >= _PARAMETERS)
    return [Encoding(media_type) for media_type in given if media_type in {*Encoding}]


def plain_document(path: str, aggregated: bytes) -> Encoded | None:
    """Return the plain document at a path; None if the cloud has no such group or version, or could not ask its server.

    ValueError and LookupError for an unreadable document.
    """
    tree: Json = parse_object(aggregated)
    groups: list[Json] = tree["items"]
    match path.split("/")[1:]:
        case ["api"]:
            # The addresses are for clients in other networks, and the aggregated form has none.
            versions = [each["version"] for group in groups for each in group["versions"]]
            return _encoded("", "APIVersions", {"versions": versions, "serverAddressByClientCIDRs": []})
        case ["apis"]:
            return _encoded("v1", "APIGroupList", {"groups": [_group(each) for each in groups]})
        case ["apis", name]:
            return next(
                (_encoded("v1", "APIGroup", _group(each)) for each in groups if _name(each) == name), None
            )
        case ["api" | "apis", *names]:
            name, version = ["", *names][-2:]
            group_version = f"{name}/{version}" if name else version
            found = [each for group in groups if _name(group) == name for each in group["versions"]]
            known = (
                each for each in found if each["version"] == version and each.get("freshness") != "Stale"
            )
            listed = next((_resources(each, name) for each in known), None)
            if listed is not None:
                value: Json = {"groupVersion": group_version, "resources": listed}
                return _encoded("v1" if name else "", "APIResourceList", value)
    return None


def _name(group: Json) -> str:
    return str(group["metadata"].get("name", ""))


def _group(group: Json) -> Json:
    """Convert a group. Its first version is the preferred one."""
    name = _name(group)
    versions = [
        {"groupVersion": f"{name}/{each['version']}", "version": each["version"]}
        for each in group["versions"]
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(version: Json, group: str) -> list[Json]:
    listed = []
    for resource in version.get("resources") or ():
        own = {"name": resource["resource"], "singularName": resource.get("singularResource", "")}
        own["namespaced"] = resource["scope"] == "Namespaced"
        names = {name: resource[name] for name in ("shortNames", "categories") if resource.get(name)}
        if resource.get("responseKind"):
            listed.append(
                {**own, **_kind(resource, group, version["version"]), "verbs": resource["verbs"], **names}
            )
        for sub in resource.get("subresources") or ():
            name = {**own, "name": f"{own['name']}/{sub['subresource']}", "singularName": ""}
            listed.append({**name, **_kind(sub, group, version["version"]), "verbs": sub["verbs"]})
    return listed


def _kind(resource: Json, group: str, version: str) -> Json:
    """Return the kind of a resource, with group and version only if they are not those of the list."""
    kind: dict[str, Any] = resource.get("responseKind") or {}
    of = (kind.get("group", ""), kind.get("version", ""))
    other = {"group": of[0], "version": of[1]} if kind and of != (group, version) else {}
    return {**{name: text for name, text in other.items() if text}, "kind": kind.get("kind", "")}


def _encoded(api_version: str, kind: str, value: Json) -> Encoded:
    typed = {"apiVersion": api_version} if api_version else {}
    return Encoded(_JSON, api_version, kind, write_json({"kind": kind, **typed, **value}))
