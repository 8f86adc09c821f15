"""The rendering from informers: the matching bindings, their order, and autoscaled replicas."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, cast

import pytest

from controllers.bindings.binding import Binding, items_of, subject_index
from controllers.bindings.renderer import Renderer
from controllers.bindings.rendering.injection import render
from controllers.bindings.workloads import Autoscaler, read_workload, subject_key
from controllers.cluster.node_pools import NodePool
from controllers.runtime.informer import Informer
from kube.json_type import Json
from kube.requests.label_requirements import LabelRequirement, Operator
from tests.controllers.support.workloads import DEPLOYMENT, POOL, container, image, patch

EVERY = frozenset("*")
SECOND = Binding("ns", "b", kind="Deployment", subject="web", pools=EVERY, fields=(image("second"),))
OTHER = Binding("ns", "c", kind="Deployment", subject="other", pools=EVERY, fields=(image("other"),))


class Known:
    """Objects of an informer, with one index."""

    def __init__(self, index: dict[str, list[Any]]) -> None:
        self._index = index
        self.has_synced = True
        self.missing = False

    def by_index(self, _: str, value: str) -> list[tuple[tuple[str, str], Any]]:
        return [(("", ""), each) for each in self._index.get(value, [])]

    def get(self, key: tuple[str, str]) -> Any:
        return next(iter(self._index.get(key[1], [])), None)


def renderer(*bindings: Binding, autoscalers: list[Autoscaler] | None = None) -> Renderer:
    index: dict[str, list[Any]] = {}
    for each in bindings:
        index.setdefault(subject_index(each)[0], []).append(each)
    targets: dict[str, list[Any]] = {
        subject_key(each.namespace, each.kind, each.name): [each] for each in autoscalers or []
    }
    pools: dict[str, list[Any]] = {"hangzhou": [NodePool("hangzhou", own_labels={"region": "east"})]}
    return Renderer(
        cast(Informer[Binding], Known(index)),
        cast(Informer[Autoscaler], Known(targets)),
        cast(Informer[NodePool], Known(pools)),
    )


def test_bindings_that_match_a_workload_are_found_in_order() -> None:
    elsewhere = Binding(
        "ns", "d", kind="Deployment", subject="web", pools=frozenset({"beijing"}), fields=(image("x"),)
    )
    found = renderer(SECOND, OTHER, elsewhere).matching(read_workload(DEPLOYMENT))
    assert [each.name for each in found] == ["b"]
    assert renderer(replace(SECOND, deleting=True)).matching(read_workload(DEPLOYMENT)) == []


@pytest.mark.parametrize(("region", "matches"), [("east", True), ("west", False)])
def test_a_binding_selects_its_pools_by_the_labels_of_node_pools(region: str, matches: bool) -> None:
    selector = (LabelRequirement("region", Operator.IN, (region,)),)
    known = renderer(replace(SECOND, pools=frozenset(), selector=selector))
    assert bool(known.matching(read_workload(DEPLOYMENT))) is matches


async def test_an_autoscaler_is_found_by_its_target() -> None:
    autoscaler = Autoscaler("ns", "Deployment", "web")
    first = Binding(
        "ns", "a", kind="Deployment", subject="web", pools=EVERY, fields=(image("first"), {"replicas": 9})
    )
    known = renderer(first, autoscalers=[autoscaler])
    rendering = await known.render(read_workload(DEPLOYMENT), DEPLOYMENT, {})
    assert [each.reason for each in rendering.skipped] == ["AutoscalerOwnsReplicas"]


def condition(reason: str) -> Json:
    return {"type": "Injected", "reason": reason, "observedGeneration": 0}


PATCHED = replace(
    OTHER,
    subject="web",
    fields=(image("other"),),
    patches=(patch("add", "/containers/0/command", ["sleep"])["patch"],),
)
PROVEN = replace(PATCHED, injected=1, conditions=(condition("AllInjected"),))
REFUSED = replace(PATCHED, conditions=(condition("Refused"),))


def carried(binding: Binding) -> Json:
    """Return the workload with a binding's injected values."""
    return render(DEPLOYMENT, {}, items_of([binding]), POOL).workload


@pytest.mark.parametrize(
    ("binding", "stored", "image", "command"),
    [
        # The controller injects a patch that no workload has yet; the webhook injects items.
        (PATCHED, {}, "other", None),
        (PATCHED, DEPLOYMENT, "other", None),
        (PROVEN, {}, "other", ["sleep"]),
        # The API server may refuse an item again that it refused once, unless the workload has it.
        (REFUSED, {}, "app:1", None),
        (REFUSED, DEPLOYMENT, "app:1", None),
        (REFUSED, carried(REFUSED), "other", ["sleep"]),
        (PATCHED, carried(PATCHED), "other", ["sleep"]),
    ],
)
async def test_the_webhook_injects_items_that_cannot_fail(
    binding: Binding, stored: Json, image: str, command: list[str] | None
) -> None:
    incoming = copy.deepcopy(stored or DEPLOYMENT)
    incoming["spec"]["replicas"] = 7
    made = (await renderer(binding).admit(read_workload(incoming), incoming, stored)).workload
    assert container(made)["image"] == image
    assert container(made).get("command") == command
    assert made["spec"]["replicas"] == 7
