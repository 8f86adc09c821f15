"""A parsed get, list or watch of objects: the selected objects, their version, and their representation."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from addons.telemetry.labels import group_resource_label
from kube.errors import StatusError, bad_request
from kube.requests.continue_tokens import ContinueToken, parse_continue
from kube.requests.quoting import quoted
from kube.requests.request_info import ListOptions, RequestInfo, ResourceType, validate_list_options
from kube.requests.resource_versions import parse_version
from kube.requests.selectors import FieldSelector, LabelSelector, parse_field_selector, parse_label_selector
from kube.tables.server_table import OBJECTS
from kube.wire.negotiation import TABLE_KIND, Representation, acceptable

OBJECT_VERBS = frozenset({"get", "list", "watch"})


class ObjectRead(NamedTuple):
    """A client's read. For a get, the selectors are empty and the version is 0."""

    verb: str
    type: ResourceType
    namespace: str
    name: str
    """Name in the field selector of a list or watch; "" if it selects none."""
    labels: LabelSelector
    fields: FieldSelector
    version: int
    """The requested resourceVersion; 0 for none."""
    is_exact: bool
    """Whether the list must have exactly `version`, not a later one."""
    is_consistent: bool
    """Whether a list, or a watch's initial state, must be as new as the cloud: no resourceVersion or continue token
    gives a version.
    """
    limit: int
    """Maximum objects of the requested page; 0 for no paging."""
    continued: ContinueToken | None
    """The parsed continue token of a further page; None for a first page."""
    wants_state: bool
    """Whether the watch begins with the current state: by `sendInitialEvents` or, if that is absent, by its version."""
    bookmarks: bool
    timeout_seconds: int | None
    accepted: tuple[Representation, ...]
    """The representations that the client accepts, preferred ones first."""
    include: str = "Metadata"
    """Part of each object that a Table's rows contain: one of `kube.tables.server_table.OBJECTS`."""


def parse_read(info: RequestInfo, accept: str | None) -> ObjectRead:
    """Parse a request as a read. StatusError like kube-apiserver's if its options are invalid."""
    assert info.type is not None
    assert info.verb in OBJECT_VERBS
    options = info.options
    continued = None
    if info.verb != "get":
        validate_list_options(options)
        if info.verb == "list" and options.continue_token:
            with suppress(StatusError):  # another server issued it, whose answer the hub may have cached
                continued = parse_continued(options)
    # kube-apiserver ignores the limit for version 0, and returns all of its cache.
    limit = max(options.limit, 0) if info.verb == "list" and options.resource_version != "0" else 0
    accepted = acceptable(accept)
    include = options.include_object or "Metadata"
    if include not in OBJECTS and any(clause.kind == TABLE_KIND for clause in accepted):
        raise bad_request(f"unrecognized includeObject value: {quoted(include)}")
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
        is_consistent=(info.verb == "list" or wants_state)
        and options.resource_version == ""
        and (continued is None or continued.version < 0),
        limit=limit,
        continued=continued,
        wants_state=wants_state,
        bookmarks=options.allow_bookmarks,
        timeout_seconds=options.timeout_seconds,
        accepted=accepted,
        include=include,
    )


def parse_continued(options: ListOptions) -> ContinueToken:
    """Return the position at which a list continues. StatusError 400 like kube-apiserver's."""
    try:
        token = parse_continue(options.continue_token)
    except ValueError as error:
        raise bad_request(str(error)) from None
    if options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return token


def read_label(info: RequestInfo) -> str:
    """Return the metrics label for the resource of a read; "" for all other requests."""
    if info.type is None or info.subresource or info.verb not in OBJECT_VERBS:
        return ""
    return group_resource_label(info.type.group, info.type.resource)
