"""Conversion of Events between the stored version and the requested one. Source: pkg/apis/core/v1 and
pkg/apis/events/v1 of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping

from kube.json_type import Json
from tests.cloud.scriptable.resources import Resource

EVENT_FIELDS: Mapping[str, str] = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
"""Fields of core/v1 Event and their names in events.k8s.io/v1; the others have the same name in both."""


def to_storage(resource: Resource, value: Json) -> Json:
    """Convert an object in `resource`'s version to its stored form. `value` is not modified, and parts of it are
    shared."""
    return _converted(resource, value, resource.stored_api_version, stored=True)


def from_storage(resource: Resource, value: Json) -> Json:
    """Return a stored object in `resource`'s version. It shares parts with `value`: do not change it."""
    return _converted(resource, value, resource.api_version, stored=False)


def stored_path(resource: Resource, field: str) -> str:
    """Return the path of a selector's field in stored objects."""
    if resource.kind == "Event":
        first, dot, rest = field.partition(".")
        for core, new in EVENT_FIELDS.items():
            if first == new:
                return core + dot + rest
    return field


def _converted(resource: Resource, value: Json, api_version: str, *, stored: bool) -> Json:
    converted = {"apiVersion": api_version, "kind": resource.kind, **value} | {"apiVersion": api_version}
    if resource.kind == "Event" and resource.stored_api_version != resource.api_version:
        names = {new: core for core, new in EVENT_FIELDS.items()} if stored else EVENT_FIELDS
        converted = {names.get(name, name): field for name, field in converted.items()}
    return converted
