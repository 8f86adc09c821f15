"""Parses a request's method and target as kube-apiserver does (apiserver, endpoints/request).

The hub chooses filters by the result, so every spelling that the cloud accepts for a list of services must parse as
one here.
"""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from kube.errors import Cause, StatusError, bad_request, invalid_fields, method_not_supported
from kube.requests.query import BAD_ESCAPE, first_values, parse_bool, parse_duration, parse_integer
from kube.requests.quoting import quoted
from kube.requests.resource_versions import parse_version
from kube.requests.selectors import escape_value, parse_field_selector, parse_label_selector

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
# Deprecated first path steps, as in /api/v1/watch/services. They determine the verb, for any method.
_VERB_STEPS = frozenset({"proxy", "watch"})
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
# Requests that kube-apiserver never times out. It ignores their ?timeout=.
_LONG_VERBS = frozenset({"proxy", "watch"})
LONG_SUBRESOURCES = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_PROFILES = "/debug/pprof/"

_GET_PARAMETERS = frozenset({"resourceVersion", "timeout", "includeObject"})
_LIST_PARAMETERS = _GET_PARAMETERS | {
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
}
_OTHER_PARAMETERS = frozenset({"timeout"})
_PARAMETERS = {
    "get": _GET_PARAMETERS,
    "list": _LIST_PARAMETERS,
    "watch": _LIST_PARAMETERS,
    "deletecollection": _LIST_PARAMETERS,
}

# Go's net/url refuses control characters in a target. A space ends the target on the wire. A surrogate cannot be
# encoded.
_ILLEGAL_IN_TARGET = re.compile("[\x00-\x20\x7f\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


BUILTIN_GROUPS = frozenset(
    {
        *("", "apps", "autoscaling", "batch", "policy", "admissionregistration.k8s.io"),
        *("apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io"),
        *("certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io"),
        *("flowcontrol.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io"),
        *("resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io"),
    }
)
"""Kubernetes' own API groups. Others that end in "k8s.io" are of custom resources, or aggregated."""
_STABLE = re.compile(r"v\d+")


class ResourceType(NamedTuple):
    """A resource of the API, such as services; `group` is "" for the core group."""

    group: str
    version: str
    resource: str

    @property
    def is_permanent(self) -> bool:
        """Whether each kube-apiserver that has ever served it always will: a stable version of Kubernetes' own."""
        return self.group in BUILTIN_GROUPS and _STABLE.fullmatch(self.version) is not None

    @property
    def api_version(self) -> str:
        """apiVersion as in an object, such as "v1" or "discovery.k8s.io/v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """The name in messages and RBAC, such as "services" or "endpointslices.discovery.k8s.io"."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def path(self, namespace: str = "", name: str = "") -> str:
        """The escaped URL path of all objects, of a namespace's objects, or of one object.

        `RequestInfo.namespace` of a Namespace is its own name; the path omits it, because a Namespace is
        cluster-scoped.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scoped = namespace and (self.group, self.resource) != ("", "namespaces")
        scope = f"/namespaces/{_step(namespace)}" if scoped else ""
        return f"{root}{scope}/{self.resource}" + (f"/{_step(name)}" if name else "")


class ListOptions(NamedTuple):
    """The options of a list, watch or deletecollection as the client sent them; of a get, only `resource_version`.

    `limit` and `timeout_seconds` may be negative. kube-apiserver treats a negative limit as none, and ends a watch
    with a negative timeout at once. `watch` is also true if the path, not the query, requests a watch.
    """

    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""
    timeout_seconds: int | None = None
    allow_bookmarks: bool = False
    send_initial_events: bool | None = None
    watch: bool = False
    include_object: str = ""

    @property
    def is_exact(self) -> bool:
        """True if a list must be of exactly this version. For kube-apiserver, a version together with a limit implies
        that."""
        if self.resource_version_match or self.resource_version in ("", "0"):
            return self.resource_version_match == "Exact"
        return self.limit > 0 and not self.continue_token and not self.watch


_NO_OPTIONS = ListOptions()
_PLAIN_WATCH = ListOptions(watch=True)


class RequestInfo(NamedTuple):
    """A parsed request.

    `path` is decoded and has no query. `verb` is RBAC's verb, "" for a method that resources do not support, and the
    method in lower case if the path names no resource. `namespace` of a Namespace object is its name. A list or watch
    has a `name` if its field selector selects one name. `timeout` is the client's ?timeout= in seconds.
    """

    method: str
    path: str
    verb: str
    type: ResourceType | None
    subresource: str
    namespace: str
    name: str
    options: ListOptions
    timeout: float | None


class _Location(NamedTuple):
    """The parts of a path. The query may still change `verb` to list, watch or deletecollection."""

    verb: str
    type: ResourceType
    namespace: str
    name: str
    subresource: str


def parse_request(method: str, target: str) -> RequestInfo:
    """Parse a request line; `target` is path and query as on the wire, beginning with "/".

    StatusError 400 if kube-apiserver refuses the URL or a parameter, 405 for a list or watch that is not a GET.
    Stricter than kube-apiserver: a path with control characters, non-UTF-8 or the steps "." and ".." is refused. A
    proxy between hub and cloud might resolve such steps, and request an object that the hub has not checked.
    """
    try:
        if not target.startswith("/"):
            raise ValueError("invalid URI for request")
        if (" " in target or not target.isprintable()) and _ILLEGAL_IN_TARGET.search(target):
            raise ValueError("net/url: invalid control character in URL")
        raw_path, _, query = target.partition("?")
        path = _decoded_path(raw_path)
        location = _locate(method, path)
        if location is None:
            timeout = None if path.startswith(_PROFILES) else _timeout(first_values(query, _OTHER_PARAMETERS))
            return RequestInfo(method, path, method.lower(), None, "", "", "", _NO_OPTIONS, timeout)
        return _resource_request(method, path, location, query)
    except ValueError as error:
        raise bad_request(str(error)) from None


def validate_list_options(options: ListOptions) -> None:
    """Refuse options of a list or watch that kube-apiserver refuses.

    StatusError 400 for selectors and for the version of a list, 422 for options that exclude each other (apimachinery,
    meta/internalversion/validation), and, as kube-apiserver, 500 for the version of a watch.
    """
    try:
        parse_label_selector(options.label_selector)
        parse_field_selector(options.field_selector)
    except ValueError as error:
        raise bad_request(str(error)) from None
    causes = _watch_causes(options) if options.watch else _list_causes(options)
    if causes:
        raise invalid_fields("meta.k8s.io", "ListOptions", "", causes)
    try:
        parse_version(options.resource_version)
    except ValueError as error:
        why = f"resourceVersion: Invalid value: {quoted(options.resource_version)}: {error}"
        if options.watch:
            raise StatusError(500, "", why) from None
        raise bad_request(f"invalid resource version: {why}") from None


def _decoded_path(raw: str) -> str:
    path = raw
    if "%" in raw:
        bad = BAD_ESCAPE.search(raw)
        if bad:
            raise ValueError(f"invalid URL escape {quoted(raw[bad.start() : bad.start() + 3])}")
        try:
            path = unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            raise ValueError("the path is not valid UTF-8") from None
        if _CONTROL.search(path):
            raise ValueError("the path has a control character")
    if "/." in path:
        for step in path.split("/"):
            if step in (".", ".."):
                raise ValueError(f"Name parameter invalid: {quoted(step)}: may not be '{step}'")
    return path


def _locate(method: str, path: str) -> _Location | None:
    """Split a path into its parts; None for a path without a resource (RequestInfoFactory.NewRequestInfo)."""
    steps = path.strip("/").split("/")
    if len(steps) >= 3 and steps[0] == "api":
        group, version, at = "", steps[1], 2
    elif len(steps) >= 4 and steps[0] == "apis":
        group, version, at = steps[1], steps[2], 3
    else:
        return None
    verb = _VERBS.get(method, "")
    if steps[at] in _VERB_STEPS:
        verb, at = steps[at], at + 1
        if at == len(steps):
            raise ValueError(f"unable to determine kind and namespace from url, {path}")
    steps = steps[at:]
    namespace = ""
    if steps[0] == "namespaces" and len(steps) > 1:
        namespace = steps[1]
        if len(steps) > 2 and steps[2] not in _NAMESPACE_SUBRESOURCES:
            steps = steps[2:]
    if verb == "watch" and steps[:2] == ["namespaces", namespace]:
        namespace = ""  # the watched Namespace has this name, and is cluster-scoped itself
    name = steps[1] if len(steps) > 1 else ""
    if "%" in name:
        raise ValueError(f"Name parameter invalid: {quoted(name)}: may not contain '%'")
    subresource = steps[2] if len(steps) > 2 and verb != "proxy" else ""
    return _Location(verb, ResourceType(group, version, steps[0]), namespace, name, subresource)


def _resource_request(method: str, path: str, location: _Location, query: str) -> RequestInfo:
    verb, type_, namespace, name, subresource = location
    if not name and verb in ("get", "delete"):
        verb = "list" if verb == "get" else "deletecollection"
    values = first_values(query, _PARAMETERS.get(verb, _OTHER_PARAMETERS))
    if verb == "list" and "watch" in values and parse_bool(values["watch"]):
        verb = "watch"
    if method != "GET" and verb in ("list", "watch"):
        raise method_not_supported("the server does not allow this method on the requested resource")
    timeout = None if verb in _LONG_VERBS or subresource in LONG_SUBRESOURCES else _timeout(values)
    options = _NO_OPTIONS
    if verb in _PARAMETERS and values:
        options = _list_options(values, watch=verb == "watch")
    elif verb == "watch":
        options = _PLAIN_WATCH
    if verb == "watch" and name:
        options = _named(options, name)
    elif verb in ("list", "watch") and location.verb != "watch":  # the server does not read it after /watch/
        name = _selected_name(options.field_selector)
    return RequestInfo(method, path, verb, type_, subresource, namespace, name, options, timeout)


def _list_options(values: dict[str, str], *, watch: bool) -> ListOptions:
    seconds, limit = values.get("timeoutSeconds"), values.get("limit")
    bookmarks, initial = values.get("allowWatchBookmarks"), values.get("sendInitialEvents")
    return ListOptions(
        label_selector=values.get("labelSelector", ""),
        field_selector=values.get("fieldSelector", ""),
        resource_version=values.get("resourceVersion", ""),
        resource_version_match=values.get("resourceVersionMatch", ""),
        timeout_seconds=None if seconds is None else parse_integer(seconds),
        limit=0 if limit is None else parse_integer(limit),
        continue_token=values.get("continue", ""),
        allow_bookmarks=bookmarks is not None and parse_bool(bookmarks),
        send_initial_events=None if initial is None else parse_bool(initial),
        watch=watch,
        include_object=values.get("includeObject", ""),
    )


def _timeout(values: dict[str, str]) -> float | None:
    """The timeout in seconds; None for no limit, as for zero and less (apiserver, filters/request_deadline.go)."""
    text = values.get("timeout")
    if not text:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"invalid timeout specified in the request URL - {error}") from None
    return seconds if seconds > 0 else None


def _selected_name(field_selector: str) -> str:
    if "metadata.name" not in field_selector:
        return ""
    try:
        name = parse_field_selector(field_selector).exact("metadata.name") or ""
    except ValueError:
        return ""  # validate_list_options or the cloud refuses the request
    return "" if name in (".", "..") or "/" in name or "%" in name else name


def _named(options: ListOptions, name: str) -> ListOptions:
    """The options of /watch/…/name: the name becomes a field selector (apiserver, handlers/get.go listOpts)."""
    if not options.field_selector:
        return options._replace(field_selector=f"metadata.name={escape_value(name)}")
    selector = parse_field_selector(options.field_selector)
    if not selector.is_everything and selector.exact("metadata.name") != name:
        raise ValueError("fieldSelector metadata.name doesn't match requested name")
    return options


def _forbidden(field: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", field, f"Forbidden: {why}")


def _unsupported(match: str, *supported: str) -> Cause:
    choice = ", ".join(quoted(value) for value in supported)
    return Cause(
        "FieldValueNotSupported",
        "resourceVersionMatch",
        f"Unsupported value: {quoted(match)}: supported values: {choice}",
    )


def _list_causes(options: ListOptions) -> list[Cause]:
    causes, match = [], options.resource_version_match
    if match:
        field = "resourceVersionMatch"
        if not options.resource_version:
            causes.append(_forbidden(field, f"{field} is forbidden unless resourceVersion is provided"))
        if options.continue_token:
            causes.append(_forbidden(field, f"{field} is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            causes.append(_unsupported(match, "Exact", "NotOlderThan", ""))
        if match == "Exact" and options.resource_version == "0":
            causes.append(_forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"'))
    if options.send_initial_events is not None:
        causes.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return causes


def _watch_causes(options: ListOptions) -> list[Cause]:
    causes, match, field = [], options.resource_version_match, "resourceVersionMatch"
    initial = options.send_initial_events
    if initial is None and not match and options.resource_version in ("", "0"):
        # kube-apiserver adds initial events to a watch without a version (meta/internalversion/defaults.go).
        initial, match = True, "NotOlderThan"
    if initial is not None and match != "NotOlderThan":
        causes.append(
            _forbidden(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        )
    if match and initial is None:
        causes.append(
            _forbidden(field, f"{field} is forbidden for watch unless sendInitialEvents is provided")
        )
    if match and match != "NotOlderThan":
        causes.append(_unsupported(match, "NotOlderThan"))
    if match and options.continue_token:
        causes.append(_forbidden(field, f"{field} is forbidden when continue is provided"))
    return causes


def _step(text: str) -> str:
    """Escape a name as a path step. ":" stays, because it is common in RBAC names and harmless in a path."""
    return quote(text, safe=":")
