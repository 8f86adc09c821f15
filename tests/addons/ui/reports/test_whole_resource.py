"""The report `explain` for a whole resource."""

from __future__ import annotations

import pytest

from addons.ui.explain import ExplainRequest
from addons.ui.reports import whole_resource
from addons.ui.reports.whole_resource import explain_resource, text_of
from addons.ui.running_hub import RunningHub
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import SERVICES, read, running_hub
from tests.addons.support.samples import cloud_service, service
from tests.cloud.scriptable import ScriptableCloud


@pytest.fixture
async def hub(parts: HubParts, cloud: ScriptableCloud) -> RunningHub:
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    await read(parts, SERVICES)
    return running_hub(parts, {"discardcloudservice": "chosen"})


async def test_what_is_hidden_and_why(hub: RunningHub) -> None:
    found = await explain_resource(hub, ExplainRequest("chosen", "services"))
    assert found["counts"] == {"kept": 1, "changed": 0, "hidden": 1, "unknown": 0}
    (hidden,) = found["objects"]
    assert (hidden["name"], hidden["outcome"]) == ("lb", "hidden")
    assert "LoadBalancer" in hidden["reasons"][0]["reason"]
    text = text_of(found, "head\n")
    assert text.startswith("head\n1 kept, 0 changed, 1 hidden, 0 unknown\ndefault/lb: hidden\n")


async def test_one_namespace_alone(hub: RunningHub) -> None:
    found = await explain_resource(hub, ExplainRequest("chosen", "services", "elsewhere"))
    assert sum(found["counts"].values()) == 0


async def test_objects_are_bounded_and_all_are_counted(
    hub: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_resource, "MAX_OBJECTS", 0)
    found = await explain_resource(hub, ExplainRequest("chosen", "services"))
    assert (found["counts"]["hidden"], found["objects"]) == (1, [])
    assert text_of(found, "").endswith("and 1 more: name a namespace\n")
