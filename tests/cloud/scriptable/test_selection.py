"""Which stored objects a selection means."""

from __future__ import annotations

from typing import Any

import pytest

from kube.errors import StatusError
from kube.requests.request_info import ListOptions
from tests.cloud.scriptable.resources import ResourceTable
from tests.cloud.scriptable.selection import field_value, select

TABLE = ResourceTable()


@pytest.mark.parametrize(
    ("resource", "field", "value", "expected"),
    [
        ("pods", "spec.nodeName", {"spec": {"nodeName": "n"}}, "n"),
        ("pods", "spec.nodeName", {}, ""),
        ("pods", "spec.nodeName", {"spec": None}, ""),
        ("pods", "spec.hostNetwork", {"spec": {"hostNetwork": True}}, "true"),
        ("pods", "spec.hostNetwork", {}, "false"),
        ("nodes", "spec.unschedulable", {"spec": {}}, "false"),
        ("namespaces", "name", {"metadata": {"name": "n"}}, "n"),
        ("events.events.k8s.io", "regarding.name", {"involvedObject": {"name": "p"}}, "p"),
    ],
)
def test_a_field_as_text(resource: str, field: str, value: dict[str, Any], expected: str) -> None:
    assert field_value(TABLE.named(resource), value, field) == expected


@pytest.mark.parametrize(
    ("options", "namespace", "matches"),
    [
        (ListOptions(), "", True),
        (ListOptions(), "n", True),
        (ListOptions(), "other", False),
        (ListOptions(label_selector="a=1"), "n", True),
        (ListOptions(label_selector="a=2"), "n", False),
        (ListOptions(field_selector="metadata.name=x"), "n", True),
        (ListOptions(field_selector="spec.nodeName!=m", label_selector="a"), "n", True),
    ],
)
def test_all_parts_of_a_selection_must_match(options: ListOptions, namespace: str, matches: bool) -> None:
    value = {"metadata": {"name": "x", "namespace": "n", "labels": {"a": "1"}}}
    selection = select(TABLE.named("pods"), namespace, options)
    assert selection.matches(value) is matches
    assert selection.is_everything == (options == ListOptions())


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ("configmaps", '"x" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        ("pods", "field label not supported: x"),
        ("nodepools", "field label not supported: x"),
    ],
)
def test_unknown_fields_are_refused_in_the_words_of_the_kind(resource: str, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        select(TABLE.named(resource), "", ListOptions(field_selector="x=y"))
    assert (refused.value.code, refused.value.message) == (400, message)
