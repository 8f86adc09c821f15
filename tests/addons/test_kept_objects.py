"""Reads from the node's own sources: what a copy can answer, and what it must leave to others."""

from __future__ import annotations

import pytest

from addons.kept_objects import _covers, _scope
from kube.reflector import Question
from kube.request import ResourceType, parse_request

PODS = ResourceType("", "v1", "pods")
EVERYWHERE = Question(PODS)
OF_NODE = Question(PODS, field_selector="spec.nodeName=n")
OF_NAMESPACE = Question(PODS, "a")
OF_APP = Question(PODS, label_selector="app=x")
ONE = Question(PODS, "a", field_selector="metadata.name=p")


@pytest.mark.parametrize(
    ("question", "target", "answered"),
    [
        (EVERYWHERE, "/api/v1/pods", True),
        (EVERYWHERE, "/api/v1/namespaces/a/pods", True),
        (EVERYWHERE, "/api/v1/pods?labelSelector=app%3Dx", True),
        (EVERYWHERE, "/api/v1/pods?fieldSelector=metadata.name%3Dp", True),
        # The encoding's schema may not have the field: only the cloud can select by it.
        (EVERYWHERE, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn", False),
        (OF_NODE, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn", True),
        (OF_NODE, "/api/v1/pods", False),
        (OF_NODE, "/api/v1/pods?fieldSelector=spec.nodeName%3Dother", False),
        (OF_NAMESPACE, "/api/v1/namespaces/a/pods", True),
        (OF_NAMESPACE, "/api/v1/namespaces/b/pods", False),
        (OF_NAMESPACE, "/api/v1/pods", False),
        (OF_APP, "/api/v1/pods?labelSelector=app%3Dx", True),
        (OF_APP, "/api/v1/pods?labelSelector=app%3Dx,more", False),
    ],
)
def test_a_list_is_complete_or_not_given(question: Question, target: str, answered: bool) -> None:
    assert (_scope(question, parse_request("GET", target)) is not None) is answered


@pytest.mark.parametrize(
    ("question", "name", "known"),
    [
        (EVERYWHERE, "p", True),
        (OF_NAMESPACE, "p", True),
        (ONE, "p", True),
        (ONE, "other", False),
        (OF_NODE, "p", False),
        (OF_APP, "p", False),
        (Question(PODS, "b"), "p", False),
    ],
)
def test_absence_is_known_only_where_the_copy_would_have_the_object(
    question: Question, name: str, known: bool
) -> None:
    assert _covers(question, parse_request("GET", f"/api/v1/namespaces/a/pods/{name}")) is known
