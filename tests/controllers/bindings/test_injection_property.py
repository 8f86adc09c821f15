"""Random histories of writers and bindings: whatever happened, taking the bindings away leaves what writers wrote."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.bindings.injection import BindingItem, read_record, render
from controllers.bindings.slots import Slot, normal, read_slot, write_slot
from kube.json_type import Json
from tests.controllers.support.workloads import DEPLOYMENT, POOL, claim, config_map, env, image

TEXTS = st.sampled_from(["1", "2", "3", ""])
NAMES = st.sampled_from(["v1", "v2", "v3"])
VARIABLES = st.sampled_from(["A", "S", "X", "Y/Z"])
CONTAINERS = st.sampled_from(["app", "side", "setup"])
STRATEGY_VALUES: list[Any] = [
    {"type": "Recreate"},
    {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
]
ITEMS = st.one_of(
    st.builds(lambda number: {"replicas": number}, st.integers(0, 3)),
    st.builds(lambda name: {"upgradeStrategy": name}, st.sampled_from(["Recreate", "RollingUpdate"])),
    st.builds(image, NAMES, CONTAINERS),
    st.builds(lambda c, values: env(c, **values), CONTAINERS, st.dictionaries(VARIABLES, TEXTS, min_size=1)),
    st.builds(config_map, NAMES),
    st.builds(claim, NAMES),
)


def entries(variable: str, value: str) -> Json:
    return normal({"name": variable, "value": value})


WRITES = st.one_of(
    st.tuples(st.just(Slot("replicas")), st.integers(0, 3)),
    st.tuples(st.just(Slot("strategy")), st.sampled_from(STRATEGY_VALUES)),
    st.tuples(st.builds(lambda name: Slot("image", name), CONTAINERS), NAMES),
    st.tuples(st.just(Slot("configmap", "config")), NAMES),
    st.tuples(st.just(Slot("pvc", "data")), NAMES),
    st.tuples(CONTAINERS, VARIABLES, st.none() | TEXTS).map(
        lambda drawn: (
            Slot("env", drawn[0], drawn[1]),
            None if drawn[2] is None else entries(drawn[1], drawn[2]),
        )
    ),
)
STEPS = st.one_of(
    st.tuples(st.just("bind"), st.lists(ITEMS, max_size=4)),
    st.tuples(st.just("edit"), WRITES),
    st.tuples(st.just("replace"), st.lists(WRITES, max_size=3)),
    st.tuples(st.just("forge"), st.text(max_size=20)),
)


class Oracle:
    """A workload with its bindings, and beside it what its writers want: that is all the test compares with."""

    def __init__(self) -> None:
        self.items: list[BindingItem] = []
        self.base = copy.deepcopy(DEPLOYMENT)
        self.live = copy.deepcopy(DEPLOYMENT)

    def bind(self, fields: list[Json]) -> None:
        """The bindings change; the controller renders what is there."""
        self.items = [BindingItem(f"b{number}", each) for number, each in enumerate(fields)]
        self.admit(self.live)

    def edit(self, slot: Slot, value: Any) -> None:
        """A writer reads the workload, changes one field and sends it back, with all that was injected."""
        incoming = copy.deepcopy(self.live)
        injected = read_record(self.live).get(slot)
        write_slot(incoming, slot, value)
        # Who sends exactly what was injected is not noticed: the known limit.
        if injected is None or injected.injected != value:
            write_slot(self.base, slot, value)
        self.admit(incoming)

    def replace(self, writes: list[tuple[Slot, Any]]) -> None:
        """A writer who has never read the workload sends a manifest of its own."""
        manifest = copy.deepcopy(DEPLOYMENT)
        for slot, value in writes:
            write_slot(manifest, slot, value)
        before = self.base
        self.base = copy.deepcopy(manifest)
        for slot, entry in read_record(self.live).items():
            if read_slot(manifest, slot) == entry.injected:
                write_slot(self.base, slot, read_slot(before, slot))
        self.admit(manifest)

    def forge(self, note: str) -> None:
        """A writer changes the record: the webhook takes the one of the stored object."""
        incoming = copy.deepcopy(self.live)
        incoming["metadata"].setdefault("annotations", {})["apps.openyurt.io/config-bindings"] = note
        self.admit(incoming)

    def admit(self, incoming: Json) -> None:
        self.live = render(incoming, read_record(self.live), self.items, POOL).workload

    def check(self) -> None:
        record = read_record(self.live)
        assert render(self.live, record, self.items, POOL).workload == self.live
        assert without_order(render(self.live, record, [], POOL).workload) == without_order(self.base)
        assert without_order(self.live) == without_order(render(self.base, {}, self.items, POOL).workload)


def without_order(workload: Json) -> Json:
    """Variables that a writer made its own come in another order than the oracle puts them: they are a map by name."""
    sorted_ones = copy.deepcopy(workload)
    spec = sorted_ones["spec"]["template"]["spec"]
    for container in [*spec["containers"], *spec["initContainers"]]:
        if "env" in container:
            container["env"].sort(key=lambda entry: entry["name"])
    return sorted_ones


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=12))
def test_any_history_is_given_back(steps: list[Any]) -> None:
    oracle = Oracle()
    for step, argument in steps:
        match step:
            case "bind":
                oracle.bind(argument)
            case "edit":
                oracle.edit(*argument)
            case "replace":
                oracle.replace(argument)
            case _:
                oracle.forge(argument)
        oracle.check()


@given(st.lists(st.lists(ITEMS, max_size=4), max_size=6))
def test_bindings_alone_leave_every_byte_as_it_was(changes: list[list[Json]]) -> None:
    oracle = Oracle()
    for fields in changes:
        oracle.bind(fields)
    oracle.bind([])
    assert oracle.live == DEPLOYMENT
