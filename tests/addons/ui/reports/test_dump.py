"""Downloads: a copy as YAML, and the archive of reports."""

from __future__ import annotations

import io
import json
import logging
import tarfile
from typing import Any

import pytest
import yaml

from addons.requests.cloud_identity import HUB_IDENTITY
from addons.ui.reports import dump as module
from addons.ui.reports.dump import dump
from addons.ui.reports.support import archive, files
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding
from tests.addons.support.hub_world import HUB_TOKEN, HubWorld
from tests.addons.support.samples import POD, secret
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "db", "namespace": "default", "annotations": {"last-applied": "aHVudGVyMg=="}},
    "data": {"password": "aHVudGVyMg=="},
}


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize(
    ("namespace", "name", "component", "names"),
    [
        ("", "", "", {"web", "lb"}),
        ("", "", "chosen", {"web"}),
        ("default", "lb", "", {"lb"}),
        ("elsewhere", "", "", set()),
    ],
)
async def test_a_dump_has_the_copy_or_the_objects_sent_to_a_component(
    hub: RunningHub, namespace: str, name: str, component: str, names: set[str]
) -> None:
    found = documents(await dump(hub, "services", namespace, name, component))
    assert {each["metadata"]["name"] for each in found} == names


@pytest.mark.parametrize(
    ("name", "component", "why"),
    [
        ("wob", "", "no services of this name: is it 'web'?"),
        ("lb", "chosen", "no services of this name, or hides it from chosen: see `edgehub explain`"),
    ],
)
async def test_a_dump_of_a_missing_object_is_an_error(
    hub: RunningHub, name: str, component: str, why: str
) -> None:
    with pytest.raises(StatusError) as refused:
        await dump(hub, "services", "", name, component)
    assert (refused.value.code, refused.value.message.endswith(why)) == (404, True)


async def test_an_unknown_component_is_reported_with_a_suggestion(hub: RunningHub) -> None:
    text = await dump(hub, "services", "", "", "chsen")
    assert text.startswith("# no rule names the component 'chsen', and it has no view: is it 'chosen'?\n")
    assert {each["metadata"]["name"] for each in documents(text)} == {"web", "lb"}


@pytest.mark.parametrize("encoding", [Encoding.JSON, Encoding.PROTOBUF])
async def test_a_dumped_secret_has_no_values(
    hub: RunningHub, parts: HubWorld, cloud: ScriptableCloud, encoding: Encoding
) -> None:
    cloud.store.create(SECRET)
    secrets = ResourceType("", "v1", "secrets")
    await parts.sources.get(HUB_IDENTITY, ListWatch(secrets, encoding=encoding)).ready(5)
    text = await dump(hub, "secrets", "", "", "")
    assert documents(text)[0]["metadata"]["name"] == "db"
    assert "aHVudGVyMg" not in text
    assert "hunter2" not in text


async def test_objects_of_another_identity_are_hidden_from_the_dump(
    hub: RunningHub, parts: HubWorld, cloud: ScriptableCloud
) -> None:
    cloud.access.tokens["pod"] = User("system:serviceaccount:shop:web")
    await parts.names("/api/v1/namespaces/default/pods?resourceVersion=0", "kubelet", caller=POD)
    with pytest.raises(StatusError) as caught:
        await dump(hub, "pods", "", "", "")
    assert caught.value.code == 404


@pytest.mark.parametrize("bound", ["MAX_DUMPED", "MAX_DUMP_BYTES"])
async def test_a_dump_is_bounded(hub: RunningHub, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(module, bound, 1)
    text = await dump(hub, "services", "", "", "")
    assert len([each for each in documents(text) if each]) == 1
    assert text.endswith("# and 1 more: name a namespace or an object\n")


async def test_the_support_archive_has_its_files_with_mode_0600(parts: HubWorld) -> None:
    found = files(parts.running_hub())
    assert {"status.json", "sources.json", "rules.json", "metrics.txt", "log.txt", "versions.json"} < set(
        found
    )
    assert json.loads(found["versions.json"])["python"].startswith("3.")
    with tarfile.open(fileobj=io.BytesIO(archive(found))) as tar:
        members = tar.getmembers()
    assert {each.name for each in members} == {f"edgehub-support/{name}" for name in found}
    assert {each.mode for each in members} == {0o600}


async def test_the_support_archive_has_no_token(parts: HubWorld, cloud: ScriptableCloud) -> None:
    cloud.access.tokens["pod"] = User("system:serviceaccount:shop:web")
    cloud.store.create(secret(k="djE="))
    await parts.names("/api/v1/namespaces/default/secrets?resourceVersion=0", caller=POD)
    hub = parts.running_hub()
    hub.records.log.attach()
    logging.getLogger("addons.test").warning(
        "sent Authorization: Bearer abc.def and eyJhbGciOi.eyJzdWIi.c2ln"
    )
    hub.records.log.detach()
    text = b"\n".join(files(hub).values()).decode()
    assert "sent Authorization: (hidden) and (hidden)" in text
    for each in ("djE=", f"Bearer {HUB_TOKEN}", "abc.def", "eyJ"):
        assert each not in text
