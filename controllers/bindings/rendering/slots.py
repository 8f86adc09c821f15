"""The fields of a workload that a binding may set. Each is a slot, with a name, a reader and a writer. Pure.

A slot's name is its key in the record on the workload: `replicas`, `strategy`, `minreadyseconds`, `image/<container>`,
`env/<container>/<variable>`, `configmap/<volume>`, `secret/<volume>`, `pvc/<volume>`, and of the pod template
`label/<key>` and `annotation/<key>`. Changes by patches are recorded as `field/<path>` (`template_fields`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from controllers.bindings.rendering.template_fields import MAX_DEPTH, depth
from controllers.runtime.unstructured import mapping, metadata, number, objects, parsed_note, text, texts
from kube.bounds import reached
from kube.json_type import Json

DEPLOYMENT = "Deployment"
STATEFUL_SET = "StatefulSet"
DAEMON_SET = "DaemonSet"
PROGRESS_DEADLINE = 600
"""Seconds: the default progressDeadlineSeconds of a Deployment. minReadySeconds must be less."""
STRATEGIES: dict[tuple[str, str], Json] = {
    (DEPLOYMENT, "Recreate"): {"type": "Recreate"},
    (DEPLOYMENT, "RollingUpdate"): {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
    },
    (STATEFUL_SET, "OnDelete"): {"type": "OnDelete"},
    (STATEFUL_SET, "RollingUpdate"): {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    (DAEMON_SET, "OnDelete"): {"type": "OnDelete"},
    (DAEMON_SET, "RollingUpdate"): {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    },
}
"""Strategies by kind and type, with the API server's defaults, so that the record equals the stored form."""

type Value = str | int | Json | None
"""The value of a slot: a number, a strategy, an image, an env entry, a name, a label. None: the field is absent."""


class SlotUnavailable(Exception):
    """The workload lacks a slot. The argument is the reason that the binding's condition reports."""


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A field that a binding may set. `part` is the container, volume or label key, `variable` an environment
    variable."""

    kind: str
    part: str = ""
    variable: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.kind, self.part, self.variable)))


FIELD = "field"
"""The kind of slots that are fields of the pod spec; their `part` is the path."""
REPLICAS = Slot("replicas")
STRATEGY = Slot("strategy")
MIN_READY = Slot("minreadyseconds")
POD_LABEL = "label"
POD_ANNOTATION = "annotation"


def parse_slot(name: str) -> Slot:
    """Parse the name of a slot in a record; ValueError for any other name."""
    match name.split("/", 2):
        case ["replicas" | "strategy" | "minreadyseconds" as kind]:
            return Slot(kind)
        case ["image" | "configmap" | "secret" | "pvc" as kind, part] if part:
            return Slot(kind, part)
        case ["label" | "annotation" as kind, *key] if any(key):
            return Slot(kind, "/".join(key))
        case ["env", part, variable] if part and variable:
            return Slot("env", part, variable)
        case ["field", *path] if any(path):
            return Slot(FIELD, "/".join(path))
    raise ValueError(f"{name!r} is not a slot")


def read_slot(workload: Json, slot: Slot) -> Value:
    """Return the value of a slot; SlotUnavailable if the workload lacks the slot."""
    parent, key = _location(workload, slot)
    if slot.kind == "env":
        index = _env_index(parent, slot.variable)
        return None if index is None else normal(objects(parent.get("env"))[index])
    if slot.kind in (POD_LABEL, POD_ANNOTATION):
        parent, key = mapping(parent.get(key)), slot.part
    value = parent.get(key)
    return value if isinstance(value, str | int | dict) else None


def write_slot(workload: Json, slot: Slot, value: Value) -> None:
    """Set a slot; None removes it. A new environment variable is appended. SlotUnavailable if the workload lacks the
    slot."""
    parent, key = _location(workload, slot)
    if slot.kind == "env":
        _write_env(parent, slot.variable, value)
    elif slot.kind in (POD_LABEL, POD_ANNOTATION):
        _write_text(parent, key, slot.part, value)
    elif value is None:
        parent.pop(key, None)
    else:
        parent[key] = value


def pod_spec(workload: Json) -> Json:
    """Return the spec of a workload's pod template; an empty object if it has none."""
    return mapping(_template(workload).get("spec"))


def fits(slot: Slot, value: object) -> bool:
    """Whether a value from a record has the slot's type. Anyone who may edit the workload may have written the
    record."""
    if value is None:
        return True
    if slot in (REPLICAS, MIN_READY):
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if slot.kind == "strategy":
        return isinstance(value, dict)
    if slot.kind == "env":
        return isinstance(value, dict) and value.get("name") == slot.variable
    return slot.kind == FIELD or isinstance(value, str)


def normal(value: Json) -> Json:
    """Return an env entry as the API server stores it: without an empty value."""
    return {key: field for key, field in value.items() if (key, field) != ("value", "")}


def mounts(container: Json, volume: str) -> bool:
    """Whether a container mounts a volume, or uses it as a block device."""
    used = [*objects(container.get("volumeMounts")), *objects(container.get("volumeDevices"))]
    return any(mount.get("name") == volume for mount in used)


def find_container(workload: Json, name: str) -> Json:
    """Return the container or, failing that, the init container of this name; SlotUnavailable if there is neither."""
    spec = pod_spec(workload)
    for container in [*objects(spec.get("containers")), *objects(spec.get("initContainers"))]:
        if container.get("name") == name:
            return container
    raise SlotUnavailable("ContainerNotFound")


def _template(workload: Json) -> Json:
    return mapping(mapping(workload.get("spec")).get("template"))


def _location(workload: Json, slot: Slot) -> tuple[Json, str]:
    """Return the object that holds a slot, and the key in it; SlotUnavailable if the workload lacks the slot."""
    spec, pod_metadata = mapping(workload.get("spec")), mapping(_template(workload).get("metadata"))
    match slot.kind:
        case "replicas":
            if workload.get("kind") == DAEMON_SET:
                raise SlotUnavailable("ReplicasNotForKind")
            return spec, "replicas"
        case "strategy":
            return spec, "strategy" if workload.get("kind") == DEPLOYMENT else "updateStrategy"
        case "minreadyseconds":
            return spec, "minReadySeconds"
        case "label":
            # The API server refuses a template that the selector does not select, and no selector can change.
            selector = mapping(spec.get("selector"))
            expressions = (text(named.get("key")) for named in objects(selector.get("matchExpressions")))
            if slot.part in (*texts(selector.get("matchLabels")), *expressions):
                raise SlotUnavailable("LabelOfSelector")
            return pod_metadata, "labels"
        case "annotation":
            return pod_metadata, "annotations"
        case "image" | "env":
            return find_container(workload, slot.part), slot.kind
        case "configmap":
            return _volume_source(workload, slot.part, "configMap"), "name"
        case "secret":
            return _volume_source(workload, slot.part, "secret"), "secretName"
        case "pvc":
            return _volume_source(workload, slot.part, "persistentVolumeClaim"), "claimName"
    raise ValueError(f"{slot} has no field of its own")


def _volume_source(workload: Json, name: str, source: str) -> Json:
    for volume in objects(pod_spec(workload).get("volumes")):
        if volume.get("name") == name:
            value = volume.get(source)
            if isinstance(value, dict):
                return value
    raise SlotUnavailable("VolumeOfOtherType")


def _env_index(container: Json, variable: str) -> int | None:
    """Return the index of the last entry with a name, which kubelet uses if there are several."""
    names = [variable.get("name") for variable in objects(container.get("env"))]
    return len(names) - 1 - names[::-1].index(variable) if variable in names else None


def _write_text(meta: Json, name: str, key: str, value: Value) -> None:
    """Set or remove a label or an annotation. The API server keeps no empty map."""
    held = meta[name] = mapping(meta.get(name))
    if value is not None:
        held[key] = value
    else:
        held.pop(key, None)
    if not held:
        del meta[name]


def _write_env(container: Json, variable: str, value: Value) -> None:
    index = _env_index(container, variable)
    entries: list[object] = list(objects(container.get("env")))
    if value is None:
        if index is not None:
            del entries[index]
    elif index is None:
        entries.append(value)
    else:
        entries[index] = value
    # The API server keeps no empty list either.
    if entries:
        container["env"] = entries
    else:
        container.pop("env", None)


RECORD = "apps.openyurt.io/config-bindings"
"""The annotation of a workload that holds the record."""
LARGEST_RECORD = 128 * 1024
"""Bytes of a record, half of the API server's limit for an object's annotations. The manager writes no longer one."""


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """A slot in the record: its base value and the injected one. `at` is the index of a list element."""

    base: Value
    injected: Value
    at: int = 0


type Record = Mapping[Slot, RecordEntry]


def read_record(workload: Json) -> Record:
    """Parse the record of a workload; empty if it has none."""
    note = texts(metadata(workload).get("annotations")).get(RECORD, "").encode()
    if len(note) > LARGEST_RECORD:
        reached("record of a binding")
        return {}
    record: dict[Slot, RecordEntry] = {}
    for name, value in parsed_note(note).items():
        entry = mapping(value)
        try:
            slot = parse_slot(name)
        except ValueError:
            continue
        if depth(entry) > MAX_DEPTH + 1 or not {"was", "set"} <= set(entry):
            continue
        if fits(slot, entry["was"]) and fits(slot, entry["set"]):
            record[slot] = RecordEntry(entry["was"], entry["set"], max(0, number(entry.get("at"))))
    return record


def format_record(record: Record) -> str:
    """Format the record for the annotation; "" for an empty record."""
    entries = {
        str(slot): {"was": entry.base, "set": entry.injected, **({"at": entry.at} if entry.at else {})}
        for slot, entry in record.items()
    }
    return orjson.dumps(entries, option=orjson.OPT_SORT_KEYS).decode() if entries else ""
