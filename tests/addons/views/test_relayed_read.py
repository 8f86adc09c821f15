"""The cloud's own answer to a read: whole, refused, or broken off. See also `tests.addons.views.test_quotas`."""

from __future__ import annotations

import pytest

from addons.views import quotas
from addons.views.relayed_read import _media_type
from kube.wire.encoding import Encoding
from kube.wire.negotiation import Representation
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.samples import POD
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.scriptable.request_log import matching

SECRETS = "/api/v1/namespaces/a/secrets"
META = ("PartialObjectMetadata", "v1", "meta.k8s.io")


@pytest.fixture(autouse=True)
def no_sources(cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.access.tokens["pod"] = User("pod")
    monkeypatch.setattr(quotas, "MAX_SOURCES", 0)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Representation(Encoding.JSON), "application/json"),
        (
            Representation(Encoding.PROTOBUF, *META),
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        ),
    ],
)
def test_forms(form: Representation, text: str) -> None:
    assert _media_type(form) == text


async def test_the_clouds_refusal_is_the_answer(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.faults.add(Refuse(410, "Expired", "too old"), when=matching(resource="secrets"))
    code, found = await parts.ask(f"{SECRETS}?resourceVersion=0", caller=POD)
    assert (code, found["reason"]) == (410, "Expired")


async def test_without_a_cloud_there_is_no_answer(parts: HubParts, cloud: ScriptableCloud) -> None:
    assert (await parts.ask(f"{SECRETS}?resourceVersion=0", caller=POD))[0] == 200
    await cloud.stop()
    assert (await parts.ask(f"{SECRETS}?resourceVersion=0", caller=POD))[0] == 503


async def test_a_stream_that_breaks_off_is_not_ended_as_if_it_were_whole(
    parts: HubParts, cloud: ScriptableCloud
) -> None:
    target = f"{SECRETS}?watch=true&resourceVersion=0"
    async with parts.open(parts.context(target, caller=POD), target) as response:
        assert await response.status == 200
        await cloud.stop()
        with pytest.raises(ConnectionResetError):
            await response.whole()
