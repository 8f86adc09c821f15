"""Fuzz target: request lines, their selectors, and Accept headers are parsed, or refused with a Status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube.errors import StatusError
from kube.requests.request_info import parse_request, validate_list_options
from kube.requests.selectors import parse_field_selector, parse_label_selector
from kube.wire.negotiation import acceptable

LABELS: tuple[Mapping[str, str], ...] = ({}, {"app": "web"}, {"app": "", "n": "7"}, {"example.com/zone": "a"})
"""Labels of objects that a selector selects from."""
METHODS = ("GET", "POST", "DELETE")
LINES = (
    "/api/v1/services?labelSelector=app%3Dweb%2Cn+in+%28a%2Cb%29&resourceVersion=0",
    "/api/v1/watch/namespaces/default/pods/p?timeoutSeconds=7&allowWatchBookmarks=true",
    "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices?watch=1&sendInitialEvents=true"
    "&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Dx",
    "/api/v1/namespaces/a/pods/p/log?timeout=1h2m3.5s&follow=true",
    "/api/v1/pods?limit=500&continue=abc",
    "/healthz?verbose",
)
SELECTORS = (
    "app=web,tier!=db",
    "n>5,n<9,!gone,example.com/zone in (a, b)",
    "app notin (,x),n==3",
    "metadata.name=a\\,b,spec.clusterIP!=None",
)


ACCEPTED = (
    "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.5,application/vnd.kubernetes.protobuf, */*",
    "application/*;q=nan,text/html;=,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
)


def seeds() -> Iterator[bytes]:
    for text in (*LINES, *SELECTORS, *ACCEPTED):
        yield b"\0" + text.encode()


def run(data: bytes) -> None:
    _line(METHODS[data[0] % len(METHODS)] if data else "GET", data[1:].decode("latin-1"))
    text = data[1:].decode(errors="replace")
    _labels(text)
    _fields(text)
    _accepted(text)


def _line(method: str, target: str) -> None:
    try:
        info = parse_request(method, target)
        if info.verb in ("list", "watch"):
            validate_list_options(info.options)
    except StatusError as error:
        assert 400 <= error.code <= 500  # noqa: PT017 - either outcome is right
        return
    assert info.type is None or info.type.resource is not None
    assert info.timeout is None or info.timeout > 0
    assert not {".", ".."} & set(info.path.split("/"))


def _labels(text: str) -> None:
    try:
        selector = parse_label_selector(text)
    except ValueError:
        return
    again = parse_label_selector(selector.canonical)
    assert again.canonical == selector.canonical
    assert [again.matches(each) for each in LABELS] == [selector.matches(each) for each in LABELS]


def _fields(text: str) -> None:
    try:
        selector = parse_field_selector(text)
    except ValueError:
        return
    again = parse_field_selector(selector.canonical)
    assert again.canonical == selector.canonical
    for value in ("", "web", "None"):
        assert again.matches(lambda _, value=value: value) == selector.matches(lambda _, value=value: value)  # type: ignore[misc]  # the default binds the loop's value


def _accepted(text: str) -> None:
    try:
        found = acceptable(text)
    except StatusError as error:
        assert error.code == 400  # noqa: PT017 - either outcome is right
        return
    assert len(set(found)) == len(found)
    assert all((each.version in ("v1", "v1beta1")) is bool(each.kind) for each in found)
