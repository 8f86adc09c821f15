"""Content views as mitmproxy asks them: which fits a body by itself, and which a person chooses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from mitmproxy import contentviews, http
from mitmproxy.test import taddons, tflow
from mitmproxy.websocket import WebSocketMessage

from addons.ui.flows.bodies import NOTE
from addons.ui.flows.content_views import register
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.kube.support import recorded

PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.fixture(autouse=True)
def context() -> Iterator[taddons.context]:
    """A mitmproxy without an interface, whose content views are those of the process."""
    register()
    with taddons.context() as made:
        yield made


def shown(content_type: str, body: bytes, view: str = "auto") -> contentviews.ContentviewResult:
    flow = tflow.tflow(resp=True)
    flow.response = http.Response.make(200, body, {"Content-Type": content_type})
    return contentviews.prettify_message(flow.response, flow, view)


@pytest.mark.parametrize("name", ["services.single", "services.list", "services.missing", "pods.list"])
@pytest.mark.parametrize("encoding", Encoding)
def test_bodies_are_shown_decoded(name: str, encoding: Encoding) -> None:
    result = shown(f"{encoding};charset=utf-8", recorded.body(name, encoding))
    assert (result.view_name, result.syntax_highlight) == ("Kubernetes", "yaml")
    assert "kind: " in result.text
    assert "failed" not in result.description


@pytest.mark.parametrize("name", ["services.watch", "services.initial", "services.expired"])
@pytest.mark.parametrize("encoding", Encoding)
def test_watches_are_shown_event_by_event(name: str, encoding: Encoding) -> None:
    body = recorded.body(name, encoding)
    result = shown(codec_for(encoding).watch_content_type, body)
    assert (result.view_name, result.syntax_highlight) == ("Kubernetes watch", "yaml")
    assert len(list(yaml.safe_load_all(result.text))) == len(codec_for(encoding).frames().feed(body))


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b'{"openapi":"3.0"}'),
        ("application/json", b""),
        ("application/json", b"[1]"),
        (PROTOBUF, b""),
        ("text/plain", b'{"kind":"Service","apiVersion":"v1"}'),
        ("application/json", b'{"metadata":{"name":"late"},"apiVersion":"v1"}'),
    ],
)
def test_other_bodies_are_left_to_mitmproxy(content_type: str, body: bytes) -> None:
    assert "Kubernetes" not in str(shown(content_type, body).view_name)


@pytest.mark.parametrize("body", [b"k8s\x00\xff\xff", b"no frame", b"\x00\x00\x00\x02\xff\xff"])
def test_a_body_that_is_malformed_is_shown_as_it_is(body: bytes) -> None:
    result = shown(PROTOBUF, body)
    assert "Traceback" not in result.text


def test_a_person_may_choose_a_view() -> None:
    body = b'{"metadata":{"name":"late"},"kind":"Service","apiVersion":"v1"}'
    assert "name: late" in shown("text/plain", body, "kubernetes").text


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize(
    ("view", "said"), [("kubernetes table", "NAMESPACE"), ("kubernetes diff", "no filter applies")]
)
def test_a_person_may_ask_what_filters_did(view: str, said: str, encoding: Encoding) -> None:
    assert said in shown(encoding, recorded.body("services.list", encoding), view).text


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("view", ["auto", "kubernetes table"])
def test_a_text_in_place_of_a_body_is_shown_as_it_is(view: str, encoding: Encoding) -> None:
    result = shown(encoding, NOTE + b"12 bytes, kept as a table\n- default/web\n", view)
    assert result.view_name == ("Kubernetes" if view == "auto" else "Kubernetes table")
    assert result.text.endswith("- default/web\n")


def test_a_message_of_a_watch_is_shown_in_colours() -> None:
    flow = tflow.twebsocketflow()
    result = contentviews.prettify_message(WebSocketMessage(1, False, NOTE + b"12:00\ntype: ADDED\n"), flow)
    assert (result.view_name, result.syntax_highlight) == ("Kubernetes watch", "yaml")
