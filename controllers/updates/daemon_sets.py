"""The facts that decide updates: a DaemonSet with its annotations and template, and its ControllerRevisions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import orjson

from controllers.cluster.kinds import REVISION, Owner, controller_of
from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, number, objects, text, texts
from controllers.runtime.write_client import ObjectReference
from kube.json_type import Json
from kube.requests.request_info import ResourceType

STRATEGY = "apps.openyurt.io/update-strategy"
UNAVAILABLE = "apps.openyurt.io/max-unavailable"
"""The annotation with a number, or a percentage of the DaemonSet's nodes, that may be unavailable."""
DEFAULT_UNAVAILABLE = "10%"
"""OpenYurt's default, also where the annotation is 0."""
ON_DELETE = "OnDelete"


class Strategy(StrEnum):
    """Values of the annotation, in any case."""

    OTA = "ota"
    ADVANCED = "advancedrollingupdate"


OLDER_NAMES = {"auto": Strategy.ADVANCED}
"""Names of the strategies in older releases of OpenYurt."""


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """The facts of a DaemonSet and its annotations; `error` says why these are invalid.

    Without a strategy most fields are unset.
    """

    namespace: str
    name: str
    uid: str
    strategy: Strategy | None = None
    error: str = ""
    max_unavailable: str = DEFAULT_UNAVAILABLE
    min_ready: int = 0
    """Seconds for which a pod is Ready before it counts as available."""
    desired: int = 0
    """The number of nodes that should have a pod."""
    template: str = ""
    """A digest of the template."""
    images: tuple[tuple[str, str], ...] = ()
    """Pairs of container and image; init containers come last."""
    pull_secrets: tuple[str, ...] = ()
    deleting: bool = False

    @property
    def reference(self) -> ObjectReference:
        return ObjectReference("apps/v1", "DaemonSet", self.namespace, self.name, self.uid)

    @property
    def unavailable(self) -> tuple[int, bool]:
        """Return how many pods may be unavailable, and whether that is a percentage."""
        given = self.max_unavailable
        return int(given.removesuffix("%")), given.endswith("%")


def read_daemon_set(obj: Json) -> DaemonSet:
    meta, spec, status = metadata(obj), mapping(obj.get("spec")), mapping(obj.get("status"))
    found = DaemonSet(text(meta.get("namespace")), text(meta.get("name")), text(meta.get("uid")))
    annotations = texts(meta.get("annotations"))
    asked = annotations.get(STRATEGY, "").lower()
    if not asked:
        return found
    strategy = OLDER_NAMES.get(asked) or next((known for known in Strategy if known == asked), None)
    given = annotations.get(UNAVAILABLE, "")
    digits = given.removesuffix("%")
    is_number = digits.isdecimal() and digits.isascii() and len(digits) <= LONGEST_NUMBER
    error = ""
    if strategy is None:
        error = f"the annotation {STRATEGY} is neither OTA nor AdvancedRollingUpdate"
    elif text(mapping(spec.get("updateStrategy")).get("type")) != ON_DELETE:
        error = f"the annotation {STRATEGY} needs spec.updateStrategy.type {ON_DELETE}"
    elif given and not is_number:
        error = f"the annotation {UNAVAILABLE} is neither a number nor a percentage"
    template = mapping(spec.get("template"))
    pod = mapping(template.get("spec"))
    containers = [*objects(pod.get("containers")), *objects(pod.get("initContainers"))]
    return DaemonSet(
        *(found.namespace, found.name, found.uid, strategy, error),
        max_unavailable=given if is_number and int(digits) else DEFAULT_UNAVAILABLE,
        min_ready=number(spec.get("minReadySeconds")),
        desired=number(status.get("desiredNumberScheduled")),
        template=digest(template),
        images=tuple((text(each.get("name")), text(each.get("image"))) for each in containers),
        pull_secrets=tuple(text(each.get("name")) for each in objects(pod.get("imagePullSecrets"))),
        deleting="deletionTimestamp" in meta,
    )


LONGEST_NUMBER = 6
"""Digits of an annotation's number."""


def _trimmed_daemon_set(obj: Json) -> Json:
    # No template is kept of a DaemonSet without a strategy.
    meta, spec, status = metadata(obj), mapping(obj.get("spec")), mapping(obj.get("status"))
    annotations = texts(meta.get("annotations"))
    fields = ("namespace", "name", "uid", "resourceVersion", "deletionTimestamp")
    asked = {name: annotations[name] for name in (STRATEGY, UNAVAILABLE) if name in annotations}
    return {
        "metadata": {**{name: meta[name] for name in fields if name in meta}, "annotations": asked},
        "spec": {name: spec.get(name) for name in ("updateStrategy", "minReadySeconds", "template")}
        if STRATEGY in asked
        else {},
        "status": {"desiredNumberScheduled": status.get("desiredNumberScheduled")},
    }


DAEMON_SETS = WatchedResource(
    ResourceType("apps", "v1", "daemonsets"), read_daemon_set, transform=_trimmed_daemon_set
)


@dataclass(frozen=True, slots=True)
class Revision:
    """A ControllerRevision of a DaemonSet: a template that it had, and the hash that its pods carry."""

    namespace: str
    owner: str
    owner_uid: str
    hash: str
    number: int
    """The revision number; the newest is the largest. A rollback to an old template gets a new number."""
    template: str
    """The digest of the template, comparable with the DaemonSet's."""


def read_revision(obj: Json) -> Revision:
    """Parse a ControllerRevision; a StatefulSet's is read without an owner."""
    meta = metadata(obj)
    owner = controller_of(meta, "DaemonSet") or Owner("", "", "")
    labels = texts(meta.get("labels"))
    return Revision(
        *(text(meta.get("namespace")), owner.name, owner.uid, labels.get(REVISION, "")),
        number(obj.get("revision")),
        text(obj.get("digest")),
    )


def _trimmed_revision(obj: Json) -> Json:
    meta = metadata(obj)
    fields = ("namespace", "name", "uid", "resourceVersion", "labels", "ownerReferences")
    template = mapping(mapping(mapping(obj.get("data")).get("spec")).get("template"))
    return {
        "metadata": {name: meta[name] for name in fields if name in meta},
        "revision": obj.get("revision"),
        "digest": digest(template),
    }


REVISIONS = WatchedResource(
    ResourceType("apps", "v1", "controllerrevisions"),
    read_revision,
    transform=_trimmed_revision,
    indexers={"daemonset": lambda revision: [revision.owner_uid] if revision.owner_uid else []},
)


def digest(template: Json) -> str:
    """Digest a template; null fields and `$patch` do not change the digest."""
    plain = {name: value for name, value in _with_values(template).items() if name != "$patch"}
    return hashlib.blake2b(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def _with_values(template: Json) -> Json:
    return {
        name: _with_values(value) if isinstance(value, dict) else value
        for name, value in template.items()
        if value is not None
    }


def newest(daemon_set: DaemonSet, revisions: Iterable[Revision]) -> Revision | None:
    """Return the revision of the DaemonSet's template; None until the DaemonSet controller has written it."""
    same = [revision for revision in revisions if revision.template == daemon_set.template]
    return max(same, key=lambda revision: revision.number, default=None)
