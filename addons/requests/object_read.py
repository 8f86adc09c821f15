"""A get, list or watch of objects, parsed once: what a client wants, of which version, and in which form."""

from __future__ import annotations

from dataclasses import dataclass

from kube.requests.request_info import RequestInfo, ResourceType, validate_list_options
from kube.requests.resource_versions import parse_version
from kube.requests.selectors import FieldSelector, LabelSelector, parse_field_selector, parse_label_selector
from kube.wire.negotiation import Representation, acceptable

OBJECT_VERBS = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class ObjectRead:
    """What a client reads. Of a get, the selectors are empty and the version is 0."""

    verb: str
    type: ResourceType
    namespace: str
    name: str
    """Of a list or watch: the name that its field selector asks for, if any."""
    labels: LabelSelector
    fields: FieldSelector
    version: int
    """The resourceVersion; 0 for none."""
    is_exact: bool
    """The list must be of `version`, not of a later one."""
    is_consistent: bool
    """It has no resourceVersion: a list, and the state with which a watch begins, must be as new as the cloud."""
    is_continued: bool
    """The list is a further page of one that the cloud began."""
    wants_state: bool
    """The watch begins with the state. `sendInitialEvents` says so or, where it is absent, the version."""
    bookmarks: bool
    timeout_seconds: int | None
    accepted: tuple[Representation, ...]
    """The forms that the client accepts, first choice first."""


def parse_read(info: RequestInfo, accept: str | None) -> ObjectRead:
    """The read that a request makes. StatusError as a kube-apiserver's, where the options are not valid."""
    assert info.type is not None
    assert info.verb in OBJECT_VERBS
    options = info.options
    if info.verb != "get":
        validate_list_options(options)
    wants_state = options.send_initial_events
    if wants_state is None:
        wants_state = options.resource_version in ("", "0")
    wants_state = wants_state and info.verb == "watch"
    return ObjectRead(
        verb=info.verb,
        type=info.type,
        namespace=info.namespace,
        name=info.name,
        labels=parse_label_selector(options.label_selector),
        fields=parse_field_selector(options.field_selector),
        version=parse_version(options.resource_version) if info.verb != "get" else 0,
        is_exact=options.is_exact,
        is_consistent=(info.verb == "list" or wants_state) and options.resource_version == "",
        is_continued=bool(options.continue_token),
        wants_state=wants_state,
        bookmarks=options.allow_bookmarks,
        timeout_seconds=options.timeout_seconds,
        accepted=acceptable(accept),
    )
