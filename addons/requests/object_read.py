"""A get, list or watch of objects, parsed once: the wanted objects, their version, and their form."""

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
    """A client's read. Of a get, the selectors are empty and the version is 0."""

    verb: str
    type: ResourceType
    namespace: str
    name: str
    """The name that the field selector of a list or watch asks for, if any."""
    labels: LabelSelector
    fields: FieldSelector
    version: int
    """The resourceVersion; 0 for none."""
    is_exact: bool
    """The list must be of `version`, not of a later one."""
    is_consistent: bool
    """Without a version, in resourceVersion or in a continue token: a list, and a watch's initial state, must be
    current.
    """
    limit: int
    """Objects of the page that the list asks for; 0 for no page."""
    continued: ContinueToken | None
    """The list is a further page of another one."""
    wants_state: bool
    """The watch begins with the state, by `sendInitialEvents` or, where that is absent, by the version."""
    bookmarks: bool
    timeout_seconds: int | None
    accepted: tuple[Representation, ...]
    """The forms that the client accepts, first choice first."""
    include: str = "Metadata"
    """The part of an object in the rows of a Table: one of `kube.tables.server_table.OBJECTS`."""


def parse_read(info: RequestInfo, accept: str | None) -> ObjectRead:
    """The read that a request makes. StatusError as a kube-apiserver's, where the options are not valid."""
    assert info.type is not None
    assert info.verb in OBJECT_VERBS
    options = info.options
    continued = None
    if info.verb != "get":
        validate_list_options(options)
        if info.verb == "list" and options.continue_token:
            with suppress(StatusError):  # another server's, which an answer may be kept of
                continued = parse_continued(options)
    # kube-apiserver ignores the limit of version 0, for which it returns all of its cache.
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
    """Return the position at which a list continues. StatusError 400 as a kube-apiserver's."""
    try:
        token = parse_continue(options.continue_token)
    except ValueError as error:
        raise bad_request(str(error)) from None
    if options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return token


def read_label(info: RequestInfo) -> str:
    """The resource of a read, as metrics name it; "" for all other requests."""
    if info.type is None or info.subresource or info.verb not in OBJECT_VERBS:
        return ""
    return group_resource_label(info.type.group, info.type.resource)
