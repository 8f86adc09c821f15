"""Random histories of writers and bindings: removing all bindings always restores what the writers wrote."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.bindings.rendering.injection import BindingItem, render
from controllers.bindings.rendering.slots import (
    FIELD,
    Slot,
    SlotUnavailable,
    normal,
    pod_spec,
    read_record,
    read_slot,
    write_slot,
)
from kube.json_type import Json
from tests.controllers.support.workloads import DEPLOYMENT, POOL, claim, config_map, env, image, patch, secret

TEXTS = st.sampled_from(["1", "2", "3", ""])
NAMES = st.sampled_from(["v1", "v2", "v3"])
VARIABLES = st.sampled_from(["A", "S", "X", "Y/Z"])
KEYS = st.sampled_from(["app", "site", "example.org/site"])
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
    st.builds(secret, NAMES),
    st.builds(lambda seconds: {"minReadySeconds": seconds}, st.integers(0, 2)),
    st.builds(lambda labels: {"podLabels": labels}, st.dictionaries(KEYS, NAMES, min_size=1)),
    st.builds(lambda notes: {"podAnnotations": notes}, st.dictionaries(KEYS, TEXTS, min_size=1)),
)
EXTRA = {"name": "extra", "image": "extra:1", "env": [{"name": "POOL", "value": "{{nodepool}}"}]}
HOST = {"name": "host", "hostPath": {"path": "/srv/{{nodepool}}"}}
PATCHES = st.sampled_from(
    [
        patch("add", "/containers/-", EXTRA),
        patch("add", "/containers/0", EXTRA),
        patch("add", "/volumes/1", HOST),
        patch("remove", "/containers/1"),
        patch("remove", "/initContainers/0"),
        patch("remove", "/volumes/0"),
        patch("replace", "/containers/0/image", "patched"),
        patch("add", "/containers/0/volumeMounts/0/readOnly", True),
        patch("add", "/containers/0/env/-", {"name": "P", "value": "patched"}),
        patch("add", "/containers/0/resources", {"limits": {"cpu": "0.5"}}),
        patch("add", "/containers/1/command", ["sh", "-c", "patched"]),
        patch("add", "/containers/1/command/0", "nice"),
        patch("add", "/tolerations", [{"operator": "Exists"}]),
        patch("add", "/tolerations/-", {"key": "edge"}),
        patch("add", "/nodeSelector", {}),
        patch("add", "/nodeSelector/zone", "{{nodepool}}"),
    ]
)


def entries(variable: str, value: str) -> Json:
    return normal({"name": variable, "value": value})


WRITES = st.one_of(
    st.tuples(st.just(Slot("replicas")), st.integers(0, 3)),
    st.tuples(st.just(Slot("strategy")), st.sampled_from(STRATEGY_VALUES)),
    st.tuples(st.builds(lambda name: Slot("image", name), CONTAINERS), NAMES),
    st.tuples(st.just(Slot("configmap", "config")), NAMES),
    st.tuples(st.just(Slot("pvc", "data")), NAMES),
    st.tuples(st.just(Slot("secret", "keys")), NAMES),
    st.tuples(st.just(Slot("minreadyseconds")), st.sampled_from([None, 1, 2])),
    st.tuples(st.just(Slot("label", "site")), st.none() | NAMES),
    st.tuples(st.builds(lambda key: Slot("annotation", key), KEYS), st.none() | TEXTS),
    st.tuples(CONTAINERS, VARIABLES, st.none() | TEXTS).map(
        lambda drawn: (
            Slot("env", drawn[0], drawn[1]),
            None if drawn[2] is None else entries(drawn[1], drawn[2]),
        )
    ),
)
STEPS = st.one_of(
    st.tuples(st.just("bind"), st.lists(ITEMS | PATCHES, max_size=6)),
    st.tuples(st.just("edit"), WRITES),
    st.tuples(st.just("replace"), st.lists(WRITES, max_size=3)),
    st.tuples(st.just("forge"), st.text(max_size=20)),
)


class Oracle:
    """A workload with its bindings, and the workload that its writers want, for comparison."""

    def __init__(self) -> None:
        self.items: list[BindingItem] = []
        self.base = stored(DEPLOYMENT)
        self.live = stored(DEPLOYMENT)

    def bind(self, fields: list[Json]) -> None:
        """Change the bindings; the controller renders the current workload."""
        self.items = [BindingItem(f"b{number}", each) for number, each in enumerate(fields)]
        self.admit(self.live)

    def edit(self, slot: Slot, value: Any) -> None:
        """Let a writer read the workload, change one field and send it back with all injected values."""
        incoming = copy.deepcopy(self.live)
        record = read_record(self.live)
        injected = record.get(slot)
        try:
            write_slot(incoming, slot, value)
        except SlotUnavailable:
            return  # a patch removed the container or the volume
        # A writer that sends exactly the injected value is not recognized: a known limit.
        if injected is None or injected.injected != value:
            write_slot(self.base, slot, value)
        self.admit(incoming)

    def replace(self, writes: list[tuple[Slot, Any]]) -> None:
        """Let a writer that has never read the workload send its own manifest."""
        manifest = stored(DEPLOYMENT)
        for slot, value in writes:
            write_slot(manifest, slot, value)
        before = self.base
        self.base = copy.deepcopy(manifest)
        for slot, entry in read_record(self.live).items():
            # Fields set by patches are in no manifest.
            if slot.kind != FIELD and read_slot(manifest, slot) == entry.injected:
                write_slot(self.base, slot, read_slot(before, slot))
        self.admit(manifest)

    def forge(self, note: str) -> None:
        """Let a writer change the record: the webhook uses the stored object's record."""
        incoming = copy.deepcopy(self.live)
        incoming["metadata"].setdefault("annotations", {})["apps.openyurt.io/config-bindings"] = note
        self.admit(incoming)

    def admit(self, incoming: Json) -> None:
        self.live = stored(render(incoming, read_record(self.live), self.items, POOL).workload)

    def check(self) -> None:
        record = read_record(self.live)
        assert render(self.live, record, self.items, POOL).workload == self.live
        assert without_order(render(self.live, record, [], POOL).workload) == without_order(self.base)
        fresh = stored(render(self.base, {}, self.items, POOL).workload)
        assert without_order(self.live) == without_order(fresh)


def stored(workload: Json) -> Json:
    """Return a workload as the API server stores it: with defaults, without empty lists, with normalized quantities."""
    obj = copy.deepcopy(workload)
    spec = pod_spec(obj)
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})
        if "limits" in container["resources"]:
            container["resources"]["limits"]["cpu"] = "500m"
    for volume in spec.get("volumes", []):
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")
    for name in [name for name, value in spec.items() if value in ([], {})]:
        del spec[name]
    return obj


def without_order(workload: Json) -> Json:
    """Sort the variables: those that a writer took over have another order in the oracle, and variables are a map by
    name."""
    sorted_ones = stored(workload)
    spec = pod_spec(sorted_ones)
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        if "env" in container:
            container["env"].sort(key=lambda entry: entry["name"])
    return sorted_ones


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=12))
def test_removing_all_bindings_restores_the_writers_workload(steps: list[Any]) -> None:
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


@given(st.lists(st.lists(ITEMS | PATCHES, max_size=6), max_size=6))
def test_adding_and_removing_bindings_restores_every_byte(changes: list[list[Json]]) -> None:
    oracle = Oracle()
    for fields in changes:
        oracle.bind(fields)
    oracle.bind([])
    assert oracle.live == stored(DEPLOYMENT)
