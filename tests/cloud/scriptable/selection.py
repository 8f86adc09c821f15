"""The objects that a list or watch selects: by namespace, label selector and field selector."""

from __future__ import annotations

from dataclasses import dataclass

from kube.errors import bad_request
from kube.json_type import Json
from kube.requests.request_info import ListOptions
from kube.requests.selectors import FieldSelector, LabelSelector, parse_field_selector, parse_label_selector
from tests.cloud.scriptable.conversion import stored_path
from tests.cloud.scriptable.resources import Resource, Trait

COMMON_FIELDS = ("metadata.name", "metadata.namespace")
FALSE_WHEN_ABSENT = frozenset({"spec.unschedulable", "spec.hostNetwork"})
"""Booleans that selectors treat as "false" if the object lacks them."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selectors and the namespace of a request."""

    resource: Resource
    namespace: str
    labels: LabelSelector
    fields: FieldSelector

    @property
    def is_everything(self) -> bool:
        """Return True if no selector excludes anything."""
        return self.labels.is_everything and self.fields.is_everything

    def matches(self, value: Json) -> bool:
        """True if a stored object is selected."""
        metadata = value["metadata"]
        if self.namespace and metadata.get("namespace", "") != self.namespace:
            return False
        if not self.labels.matches(metadata.get("labels") or {}):
            return False
        return self.fields.matches(lambda field: field_value(self.resource, value, field))


def select(resource: Resource, namespace: str, options: ListOptions) -> Selection:
    """Return the selection of a request; StatusError 400 for a malformed selector or an unknown field."""
    try:
        labels = parse_label_selector(options.label_selector)
        fields = parse_field_selector(options.field_selector)
    except ValueError as error:
        raise bad_request(str(error)) from error
    for field in sorted(fields.fields):
        if field not in (*COMMON_FIELDS, *resource.selectable):
            raise bad_request(_unknown(resource, field))
    return Selection(resource, namespace, labels, fields)


def field_value(resource: Resource, value: Json, field: str) -> str:
    """Return the field of a stored object as the text that a field selector compares, "" if it is absent."""
    if field == "name":
        field = "metadata.name"
    found: object = value
    for name in stored_path(resource, field).split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return "true" if found else "false"
    if found is None:
        return "false" if field in FALSE_WHEN_ABSENT else ""
    return str(found)


def _unknown(resource: Resource, field: str) -> str:
    """Return the message of a real server: kinds without fields of their own list the known ones."""
    if resource.selectable or Trait.CUSTOM in resource.traits:
        return f"field label not supported: {field}"
    known = ", ".join(f'"{name}"' for name in COMMON_FIELDS)
    return f'"{field}" is not a known field selector: only {known}'
