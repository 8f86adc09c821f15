"""The rendering by what informers know: which bindings, in which order, and whether an autoscaler is in the way."""

from __future__ import annotations

from typing import Any, cast

import pytest

from controllers.bindings.binding import Binding, subject_index
from controllers.bindings.injection import RECORD
from controllers.bindings.renderer import Renderer
from controllers.bindings.workloads import Autoscaler, read_workload, subject_key
from controllers.runtime.informer import Informer
from tests.controllers.support.workloads import DEPLOYMENT, container, image

EVERY = frozenset("*")
SECOND = Binding("ns", "b", kind="Deployment", subject="web", pools=EVERY, fields=(image("second"),))
FIRST = Binding(
    "ns", "a", kind="Deployment", subject="web", pools=EVERY, fields=(image("first"), {"replicas": 9})
)
OTHER = Binding("ns", "c", kind="Deployment", subject="other", pools=EVERY, fields=(image("other"),))
ELSEWHERE = Binding(
    "ns", "d", kind="Deployment", subject="web", pools=frozenset({"beijing"}), fields=(image("x"),)
)
AUTOSCALER = Autoscaler("ns", "Deployment", "web")


class Known:
    """What an informer knows, found by one index."""

    def __init__(self, index: dict[str, list[Any]]) -> None:
        self._index = index
        self.has_synced = True

    def by_index(self, _: str, value: str) -> list[tuple[tuple[str, str], Any]]:
        return [(("", ""), each) for each in self._index.get(value, [])]


def renderer(*bindings: Binding, autoscalers: list[Autoscaler] | None = None) -> Renderer:
    index: dict[str, list[Any]] = {}
    for each in bindings:
        index.setdefault(subject_index(each)[0], []).append(each)
    targets: dict[str, list[Any]] = {
        subject_key(each.namespace, each.kind, each.name): [each] for each in autoscalers or []
    }
    return Renderer(cast(Informer[Binding], Known(index)), cast(Informer[Autoscaler], Known(targets)))


def test_the_bindings_of_a_workload_in_the_order_of_their_names() -> None:
    rendering = renderer(SECOND, FIRST, OTHER, ELSEWHERE).render(
        read_workload(DEPLOYMENT), DEPLOYMENT, DEPLOYMENT
    )
    assert container(rendering.workload)["image"] == "second"
    assert rendering.workload["spec"]["replicas"] == 9
    assert [each.binding for each in rendering.overridden] == ["a"]


def test_matching_bindings() -> None:
    found = renderer(SECOND, OTHER, ELSEWHERE).matching(read_workload(DEPLOYMENT))
    assert [each.name for each in found] == ["b"]


def test_an_autoscaler_is_found_by_its_target() -> None:
    known = renderer(FIRST, autoscalers=[AUTOSCALER])
    rendering = known.render(read_workload(DEPLOYMENT), DEPLOYMENT, {})
    assert [each.reason for each in rendering.skipped] == ["AutoscalerOwnsReplicas"]


@pytest.mark.parametrize("note", [None, '{"image/app":{"was":"base","set":"app:1"}}'])
def test_the_record_is_of_the_stored_object(note: str | None) -> None:
    stored = {"metadata": {"annotations": {RECORD: note}}} if note else {}
    rendering = renderer().render(read_workload(DEPLOYMENT), DEPLOYMENT, stored)
    assert container(rendering.workload)["image"] == ("base" if note else "app:1")
