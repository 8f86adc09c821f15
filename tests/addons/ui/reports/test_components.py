"""The report `components`."""

from __future__ import annotations

from addons.ui.reports.components import components
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import running_hub


async def test_who_asked_the_one_with_most_bytes_first(parts: HubParts) -> None:
    hub = running_hub(parts)
    hub.traffic.began("kubelet", "pods", 404, is_watch=False).totals.sent += 10
    proxy = hub.traffic.began("kube-proxy", "endpointslices.discovery.k8s.io", 200, is_watch=True)
    proxy.totals.sent += 500
    first, second = components(hub)
    assert first.items() >= {"component": "kube-proxy", "bytes": 500, "watches": 1, "errors": 0}.items()
    assert first["reads"] == ["endpointslices.discovery.k8s.io"]
    assert first["filters"][0] == "discardcloudservice"
    assert second.items() >= {"component": "kubelet", "requests": 1, "errors": 1}.items()


async def test_who_is_silent_is_left_out_but_for_an_open_watch(parts: HubParts) -> None:
    hub = running_hub(parts)
    hub.traffic.components()
    watching = hub.traffic.began("quiet", "", 200, is_watch=True)
    hub.traffic.began("gone", "", 200, is_watch=False)
    hub.traffic._minutes.append((0, {}))
    assert {each["component"] for each in components(hub)} == {"quiet", "gone"}
    watching.watches = 0
