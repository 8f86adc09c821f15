"""Content views of bodies of the Kubernetes API: the choice of the view, and its content."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from mitmproxy import contentviews, http
from mitmproxy.test import taddons, tflow
from mitmproxy.websocket import WebSocketMessage

from addons.ui.flows import content_views
from addons.ui.flows.bodies import NOTE
from addons.ui.flows.content_views import difference, register, table
from addons.ui.flows.flow_records import FlowRecord
from addons.ui.masking import DEFAULT_VISIBILITY
from kube.schemas.json_objects import json_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.filtered_view import fill, opened, services
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.samples import cloud_service, raw, service
from tests.cloud.scriptable import ScriptableCloud
from tests.kube.support import recorded

PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.fixture(autouse=True)
def context() -> Iterator[taddons.context]:
    """A mitmproxy context without an interface; its content views are those of the process."""
    register()
    with taddons.context() as made:
        yield made


def prettified(content_type: str, body: bytes, view: str = "auto") -> contentviews.ContentviewResult:
    flow = tflow.tflow(resp=True)
    flow.response = http.Response.make(200, body, {"Content-Type": content_type})
    return contentviews.prettify_message(flow.response, flow, view)


@pytest.mark.parametrize("name", ["services.single", "services.list", "services.missing", "pods.list"])
@pytest.mark.parametrize("encoding", Encoding)
def test_bodies_are_shown_decoded(name: str, encoding: Encoding) -> None:
    result = prettified(f"{encoding};charset=utf-8", recorded.body(name, encoding))
    assert (result.view_name, result.syntax_highlight) == ("Kubernetes", "yaml")
    assert "kind: " in result.text
    assert "failed" not in result.description


@pytest.mark.parametrize("name", ["services.watch", "services.initial", "services.expired"])
@pytest.mark.parametrize("encoding", Encoding)
def test_watches_are_shown_event_by_event(name: str, encoding: Encoding) -> None:
    body = recorded.body(name, encoding)
    result = prettified(codec_for(encoding).watch_content_type, body)
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
def test_bodies_that_are_not_of_kubernetes_are_left_to_mitmproxy(content_type: str, body: bytes) -> None:
    assert "Kubernetes" not in str(prettified(content_type, body).view_name)


@pytest.mark.parametrize("body", [b"k8s\x00\xff\xff", b"no frame", b"\x00\x00\x00\x02\xff\xff"])
def test_a_malformed_body_is_shown_unmodified(body: bytes) -> None:
    result = prettified(PROTOBUF, body)
    assert "Traceback" not in result.text


def test_a_user_may_choose_a_view() -> None:
    body = b'{"metadata":{"name":"late"},"kind":"Service","apiVersion":"v1"}'
    assert "name: late" in prettified("text/plain", body, "kubernetes").text


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize(
    ("view", "said"), [("kubernetes table", "NAMESPACE"), ("kubernetes diff", "no filter applies")]
)
def test_a_content_view_shows_the_effect_of_filters(view: str, said: str, encoding: Encoding) -> None:
    assert said in prettified(encoding, recorded.body("services.list", encoding), view).text


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("view", ["auto", "kubernetes table"])
def test_a_note_instead_of_a_body_is_shown_unmodified(view: str, encoding: Encoding) -> None:
    result = prettified(encoding, NOTE + b"12 bytes, kept as a table\n- default/web\n", view)
    assert result.view_name == ("Kubernetes" if view == "auto" else "Kubernetes table")
    assert result.text.endswith("- default/web\n")


def test_a_message_of_a_watch_is_shown_in_colours() -> None:
    flow = tflow.twebsocketflow()
    result = contentviews.prettify_message(WebSocketMessage(1, False, NOTE + b"12:00\ntype: ADDED\n"), flow)
    assert (result.view_name, result.syntax_highlight) == ("Kubernetes watch", "yaml")


NOTHING = FlowRecord(None, DEFAULT_VISIBILITY)


async def test_a_table_lists_the_shown_and_the_dropped_objects(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    fill(cloud)
    record, body = await services(parts)
    lines = table(Encoding.JSON, body, record).splitlines()
    assert lines[0].startswith("# ServiceList, 1 objects, ")
    assert lines[0].endswith(": 1 kept, 0 changed, 1 dropped, as of now")
    assert lines[1].split() == ["NAMESPACE", "NAME", "VERSION", "BYTES", "OUTCOME"]
    rows = {line.split()[1]: line for line in lines[2:]}
    assert rows["web"].endswith("  kept")
    assert "dropped: discardcloudservice: service default/lb" in rows["lb"]


@pytest.mark.parametrize("encoding", Encoding)
def test_a_table_of_a_list_without_a_record_has_no_outcomes(encoding: Encoding) -> None:
    text = table(encoding, recorded.body("services.list", encoding), NOTHING)
    assert "0 changed, 0 dropped" in text
    with pytest.raises(ValueError, match="list"):
        table(encoding, recorded.body("services.single", encoding), NOTHING)


@pytest.mark.parametrize("encoding", Encoding)
async def test_a_difference_has_the_reason_at_the_line(
    parts: HubWorld, cloud: ScriptableCloud, encoding: Encoding
) -> None:
    fill(cloud)
    record, body = await opened(parts, accept=encoding)
    text = difference(body, record, encoding)
    assert text.startswith("# servicetopology: 0 kept, 1 changed, 0 dropped, as of now")
    assert "# default/web-1 changed: servicetopology: 10.0.0.2 dropped: " in text
    (line,) = (each for each in text.splitlines() if each.startswith("-") and "10.0.0.2" in each)
    assert "  # servicetopology: " in line
    assert not any(each.startswith("-") and "10.0.0.1" in each for each in text.splitlines())


async def test_a_difference_shows_dropped_objects_completely(parts: HubWorld, cloud: ScriptableCloud) -> None:
    fill(cloud)
    record, body = await services(parts)
    text = difference(body, record, Encoding.JSON)
    assert "# default/lb dropped: discardcloudservice" in text
    assert "-  type: LoadBalancer" in text
    assert "+" not in text.replace("+00:00", "")


async def test_an_object_created_since_the_response_is_named_in_the_difference(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    fill(cloud)
    record, _ = await opened(parts)
    single = raw(service("other", 7))
    text = difference(single, record, Encoding.JSON)
    assert "# this answer does not have it" in text


def test_a_flow_without_filters_has_no_difference() -> None:
    assert "no filter applies" in difference(b"", NOTHING, Encoding.JSON)


async def test_evaluated_and_printed_lines_are_bounded(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        cloud.store.create(cloud_service(f"lb-{number}"))
    record, body = await services(parts)
    encoded = difference(body, record, Encoding.JSON)
    monkeypatch.setattr(content_views, "MAX_LINES", 3)
    assert len(difference(body, record, Encoding.JSON).splitlines()) == 5 < len(encoded.splitlines())
    monkeypatch.setattr(content_views, "MAX_DRY_RUNS", 2)
    assert table(Encoding.JSON, body, record).count("dropped: discardcloudservice") == 2


async def test_a_difference_ignores_the_encodings_of_the_objects(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """A protobuf copy and a JSON response with another order of fields once gave 40 false lines around one
    difference."""
    fill(cloud)
    record, body = await opened(parts, accept=Encoding.PROTOBUF)
    page = codec_for(Encoding.PROTOBUF).decode_list(body)
    objects = [json_object(page.api_version, page.kind, each) for each in page.items]
    turned = [dict(reversed(each.items())) for each in objects]
    as_json = raw(
        {"kind": f"{page.kind}List", "apiVersion": page.api_version, "metadata": {}, "items": turned}
    )
    assert difference(as_json, record, Encoding.JSON) == difference(body, record, Encoding.PROTOBUF)
