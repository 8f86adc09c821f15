"""Renders a workload with the values of its bindings. Pure: the webhook, the controller and the preview share it.

The rendering starts from the base: the workload as its writers want it, without any binding. A record in an annotation
of the workload (never of its pod template, where it would roll pods) has the base and the injected value of each
injected slot. `render` restores the base by the record, injects the items, and writes the new record:

- A slot that still holds the injected value has the recorded base. Another value is a writer's own and the new base. -
So `render` is idempotent, and without items it returns the base. - A writer who sends exactly the injected value is not
noticed.

Patches come last, on the other items' result. Their changes of the pod spec are recorded as fields, which `render`
restores first.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controllers.bindings.rendering.slots import (
    DEPLOYMENT,
    FIELD,
    LARGEST_RECORD,
    MIN_READY,
    POD_ANNOTATION,
    POD_LABEL,
    PROGRESS_DEADLINE,
    RECORD,
    REPLICAS,
    STRATEGIES,
    STRATEGY,
    Record,
    RecordEntry,
    Slot,
    SlotUnavailable,
    Value,
    find_container,
    format_record,
    mounts,
    normal,
    pod_spec,
    read_slot,
    write_slot,
)
from controllers.bindings.rendering.template_fields import (
    FieldChange,
    Path,
    complete,
    differences,
    format_path,
    parse_path,
    patch_pod_spec,
    restore,
)
from controllers.runtime.unstructured import copied, mapping, metadata, number, text, texts
from kube.bounds import reached
from kube.json_type import Json
from kube.requests.label_syntax import key_faults, value_faults
from kube.wire.json_fields import write_json

MAX_WORK = 32 * 1024 * 1024
"""The most work of one rendering: bytes of a pod spec and its items, times the slots and recorded fields to find in it.
This much takes a third of a second; 300 variables in a pod spec of 50 KB are half of it."""
SCAN = 16
"""Cost factor of a recorded list element that is identified by its value: finding it scans the list."""

VOLUMES = {
    "configMap": ("configmap", ("configMapClaim", "configMapSource"), "configMapTarget"),
    "secret": ("secret", ("secretSource",), "secretTarget"),
    "persistentVolumeClaim": ("pvc", ("pvcSource",), "pvcTarget"),
}
"""By item kind: the kind of its slot, and the fields that name the volume and its content."""


@dataclass(frozen=True, slots=True)
class BindingItem:
    """One item of a binding, or one patch as {"patch": …}, with the binding's name."""

    binding: str
    fields: Json


@dataclass(frozen=True, slots=True)
class Target:
    """The workload's environment: its pool, and whether a HorizontalPodAutoscaler sets its replicas."""

    pool: str = ""
    autoscaled: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """An item that is not injected, because the workload lacks its slot."""

    binding: str
    slot: str
    reason: str

    def __str__(self) -> str:
        return f"{self.slot}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Overridden:
    """A slot to which a later binding gave another value."""

    binding: str
    slot: str
    winner: str


@dataclass(frozen=True, slots=True)
class Rendering:
    """The result: `workload` is the rendered object, `record` its annotation; the rest is for the status of
    bindings."""

    workload: Json
    record: Record
    skipped: tuple[Skipped, ...] = ()
    overridden: tuple[Overridden, ...] = ()


def render(incoming: Json, record: Record, items: Iterable[BindingItem], target: Target) -> Rendering:
    """Return the workload with the items injected in order; a later item wins. `incoming` is not changed.

    A record, or items, beyond MAX_WORK are ignored: the items are then reported as skipped.
    """
    items = list(items)
    size = len(write_json(pod_spec(incoming)))
    if sum(SCAN if "{" in slot.part else 1 for slot in record) * size > MAX_WORK:
        reached("work of a rendering")
        record = {}
    if reason := _too_much(items, size):
        names = dict.fromkeys(item.binding for item in items)
        return _refused(incoming, record, tuple(Skipped(name, "all items", reason) for name in names))
    workload = copied(incoming)
    held = _restore(workload, record)
    wishes = _Injections()
    for item in items:
        _wish(workload, item, target, wishes)
    injected, skipped = _inject(workload, wishes)
    injected |= _patch(workload, wishes, target, held)
    note = format_record(injected)
    if len(note.encode()) > LARGEST_RECORD:
        skipped = [Skipped(wish.binding, str(slot), "RecordTooLarge") for slot, wish in wishes.slots.items()]
        skipped += [
            Skipped(patch.binding, _shown(patch.fields), "RecordTooLarge") for patch in wishes.patches
        ]
        return _refused(incoming, record, (*wishes.skipped, *skipped), tuple(wishes.overridden))
    _annotate(workload, note)
    return Rendering(workload, injected, (*wishes.skipped, *skipped), tuple(wishes.overridden))


def _refused(
    incoming: Json, record: Record, skipped: tuple[Skipped, ...], overridden: tuple[Overridden, ...] = ()
) -> Rendering:
    """Return the base without any items, each of which is skipped for the same reason."""
    workload = copied(incoming)
    _restore(workload, record)
    _annotate(workload, "")
    return Rendering(workload, {}, skipped, overridden)


def _too_much(items: list[BindingItem], size: int) -> str:
    """Return why rendering these items into a pod spec of this size costs too much; "" if it does not."""
    slots, patching = 0, set[str]()
    for item in items:
        size += len(write_json(item.fields))
        env, labels, annotations = (item.fields.get(name) for name in ("env", "podLabels", "podAnnotations"))
        several = mapping(env).get("envClaim"), labels, annotations  # an item may have several slots
        slots += max(1, *(len(mapping(field)) for field in several))
        if "patch" in item.fields:
            patching.add(item.binding)
    # The slots are read before and after the patches of each binding.
    return "TooMuchWork" if slots * (1 + len(patching)) * size > MAX_WORK else ""


@dataclass(slots=True)
class _Injection:
    binding: str
    value: Value


@dataclass(slots=True)
class _Injections:
    """The values that items set, by slot; a later item replaces an earlier one."""

    slots: dict[Slot, _Injection] = field(default_factory=dict)
    patches: list[BindingItem] = field(default_factory=list)
    patched: dict[str, dict[str, BindingItem]] = field(default_factory=dict)
    """The last patch of each path by each binding."""
    skipped: list[Skipped] = field(default_factory=list)
    overridden: list[Overridden] = field(default_factory=list)

    def add(self, binding: str, slot: Slot, value: Value) -> None:
        earlier = self.slots.get(slot)
        if earlier is not None and earlier.binding != binding and earlier.value != value:
            self.overridden.append(Overridden(earlier.binding, str(slot), binding))
        self.slots[slot] = _Injection(binding, value)

    def add_patch(self, patch: BindingItem) -> None:
        path = text(patch.fields.get("path"))
        # An element that is added to a list replaces none.
        inserts = patch.fields.get("operation") == "add" and path.rpartition("/")[2].lstrip("-").isdigit()
        if not inserts and not path.endswith("/-"):
            of_path = self.patched.setdefault(path, {})
            for of_binding in of_path.values():
                if of_binding.binding != patch.binding and of_binding.fields != patch.fields:
                    self.overridden.append(Overridden(of_binding.binding, path, patch.binding))
            of_path[patch.binding] = patch
        self.patches.append(patch)

    def skip(self, binding: str, slot: Slot | str, reason: str) -> None:
        self.skipped.append(Skipped(binding, str(slot), reason))


@dataclass(frozen=True, slots=True)
class _Held:
    """A field that a patch had set, and its live value, to which the API server may have added defaults."""

    injected: Value
    live: Value


def _restore(workload: Json, record: Record) -> dict[Slot, _Held]:
    """Restore the base; return the fields that still had the values of patches."""
    fields = {
        parse_path(slot.part): FieldChange(entry.base, entry.injected, entry.at)
        for slot, entry in record.items()
        if slot.kind == FIELD
    }
    held = restore(pod_spec(workload), fields)
    for slot, entry in record.items():
        if slot.kind == FIELD:
            continue
        # A writer may have removed the container or volume, with the injected value.
        with contextlib.suppress(SlotUnavailable):
            if _holds(slot, read_slot(workload, slot), entry.injected):
                write_slot(workload, slot, entry.base)
    return {Slot(FIELD, format_path(path)): _Held(fields[path].after, live) for path, live in held.items()}


def _inject(workload: Json, wishes: _Injections) -> tuple[dict[Slot, RecordEntry], list[Skipped]]:
    injected, skipped = dict[Slot, RecordEntry](), list[Skipped]()
    # Sorted, so that new environment variables come in an order that no history changes.
    for slot, wish in sorted(wishes.slots.items()):
        try:
            base = read_slot(workload, slot)
            if not _satisfies(slot, base, wish.value):
                injected[slot] = RecordEntry(base, wish.value)
                write_slot(workload, slot, wish.value)
        except SlotUnavailable as reason:
            skipped.append(Skipped(wish.binding, str(slot), str(reason)))
    return injected, skipped


def _patch(
    workload: Json, wishes: _Injections, target: Target, held: Mapping[Slot, _Held]
) -> dict[Slot, RecordEntry]:
    """Apply the patches; return the changed fields. `held` comes from `_restore`."""
    spec = pod_spec(workload)
    before = copied(spec)
    for binding, patches in itertools.groupby(wishes.patches, key=lambda patch: patch.binding):
        unpatched = _values(workload, wishes)
        for patch in patches:
            if reason := patch_pod_spec(spec, patch.fields, lambda value: _filled(value, target.pool)):
                wishes.skip(binding, _shown(patch.fields), reason)
        for slot, value in _values(workload, wishes).items():
            loser = wishes.slots[slot].binding
            if value != unpatched.get(slot) and loser != binding:
                wishes.overridden.append(Overridden(loser, str(slot), binding))
    changed, live = dict[Slot, RecordEntry](), dict[Path, Value]()
    for path, change in differences(before, spec).items():
        slot = Slot(FIELD, format_path(path))
        changed[slot] = RecordEntry(change.before, copied(change.after), change.at)
        if slot in held and held[slot].injected == change.after:
            live[path] = held[slot].live
    complete(spec, live)
    return changed


def _values(workload: Json, wishes: _Injections) -> dict[Slot, Value]:
    """Return the current values of the slots that items set; a slot that the workload lacks is absent."""
    values: dict[Slot, Value] = {}
    for slot in wishes.slots:
        with contextlib.suppress(SlotUnavailable):
            values[slot] = copied(read_slot(workload, slot))
    return values


def _shown(patch: Json) -> str:
    """Format a patch for conditions and warnings."""
    return f"patch {text(patch.get('operation'))} {text(patch.get('path'))}"


def _annotate(workload: Json, note: str) -> None:
    meta = metadata(workload)
    annotations = mapping(meta.get("annotations"))
    if note:
        workload["metadata"] = {**meta, "annotations": {**annotations, RECORD: note}}
    elif RECORD in annotations:
        del annotations[RECORD]
        if not annotations:
            del meta["annotations"]


def _holds(slot: Slot, live: Value, injected: Value) -> bool:
    """Whether a slot still has the injected value. The API server may have added defaults to a strategy."""
    if slot == STRATEGY and isinstance(injected, dict) and isinstance(live, dict):
        inner, wanted = mapping(live.get("rollingUpdate")), mapping(injected.get("rollingUpdate"))
        return live.get("type") == injected.get("type") and wanted.items() <= inner.items()
    return live == injected


def _satisfies(slot: Slot, base: Value, wanted: Value) -> bool:
    """Whether the base already has an item's value. Strategies are compared by type only."""
    if slot == STRATEGY and isinstance(base, dict) and isinstance(wanted, dict):
        return bool(base.get("type") == wanted["type"])
    return base == wanted


def _wish(workload: Json, item: BindingItem, target: Target, wishes: _Injections) -> None:
    """Add an item's value, or the reason why it is skipped, to `wishes`. An unknown item adds none."""
    kind, value = next(iter(item.fields.items()), ("", None))
    if kind == "replicas" and isinstance(value, int):
        if target.autoscaled:
            wishes.skip(item.binding, REPLICAS, "AutoscalerOwnsReplicas")
        else:
            wishes.add(item.binding, REPLICAS, value)
    elif kind == "upgradeStrategy":
        strategy = STRATEGIES.get((text(workload.get("kind")), text(value)))
        if strategy is None:
            wishes.skip(item.binding, STRATEGY, "StrategyNotForKind")
        else:
            wishes.add(item.binding, STRATEGY, copied(strategy))
    elif kind == "minReadySeconds" and isinstance(value, int):
        _wish_to_wait(workload, item.binding, value, wishes)
    elif kind == "patch" and isinstance(value, dict):
        wishes.add_patch(BindingItem(item.binding, value))
    elif kind in ("podLabels", "podAnnotations"):
        _wish_of_pods(item.binding, kind, texts(value), target.pool, wishes)
    elif isinstance(value, dict):
        _wish_of_container(workload, item.binding, kind, value, target.pool, wishes)


def _wish_to_wait(workload: Json, binding: str, seconds: int, wishes: _Injections) -> None:
    deadline = number(mapping(workload.get("spec")).get("progressDeadlineSeconds"), PROGRESS_DEADLINE)
    if workload.get("kind") == DEPLOYMENT and seconds >= deadline:
        wishes.skip(binding, MIN_READY, "LongerThanDeadline")
    else:
        # The API server stores no 0.
        wishes.add(binding, MIN_READY, seconds or None)


def _wish_of_pods(binding: str, kind: str, claims: Mapping[str, str], pool: str, wishes: _Injections) -> None:
    """Add the labels or annotations of pods. Invalid ones are skipped: the API server would refuse the workload."""
    for key, claim in claims.items():
        slot, value = Slot(POD_LABEL if kind == "podLabels" else POD_ANNOTATION, key), _filled(claim, pool)
        if slot.kind == POD_LABEL and (key_faults(key) or value_faults(value)):
            wishes.skip(binding, slot, "InvalidLabel")
        elif slot.kind == POD_ANNOTATION and key_faults(key.lower()):
            wishes.skip(binding, slot, "InvalidAnnotation")
        else:
            wishes.add(binding, slot, value)


def _wish_of_container(
    workload: Json, binding: str, kind: str, value: Json, pool: str, wishes: _Injections
) -> None:
    container = text(value.get("containerName"))
    if kind == "image":
        wishes.add(binding, Slot("image", container), _filled(value.get("imageClaim"), pool))
    elif kind == "env":
        for name, claim in texts(value.get("envClaim")).items():
            entry = normal({"name": name, "value": _filled(claim, pool)})
            wishes.add(binding, Slot("env", container, name), entry)
    elif kind in VOLUMES:
        slot, sources, target = VOLUMES[kind]
        volume = next(filter(None, (text(value.get(source)) for source in sources)), "")
        name = _filled(value.get(target), pool)
        _wish_of_volume(workload, binding, Slot(slot, volume), container, name, wishes)


def _wish_of_volume(
    workload: Json, binding: str, slot: Slot, container: str, name: str, wishes: _Injections
) -> None:
    try:
        if mounts(find_container(workload, container), slot.part):
            wishes.add(binding, slot, name)
        else:
            wishes.skip(binding, slot, "VolumeNotMounted")
    except SlotUnavailable as reason:
        wishes.skip(binding, slot, str(reason))


def _filled(value: object, pool: str) -> str:
    """Replace the placeholders in an item's text with the pool's name."""
    return text(value).replace("{{nodepool-name}}", pool).replace("{{nodepool}}", pool)
