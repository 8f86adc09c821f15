"""The archive for support: everything but secrets and tokens."""

from __future__ import annotations

import io
import json
import logging
import tarfile

from addons.ui.reports.support import archive, files
from tests.addons.support.hub_parts import HUB_TOKEN, HubParts
from tests.addons.support.report_parts import running_hub
from tests.addons.support.samples import POD, secret
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User


async def test_what_is_in_it(parts: HubParts) -> None:
    found = files(running_hub(parts))
    assert {"status.json", "sources.json", "rules.json", "metrics.txt", "log.txt", "versions.json"} < set(
        found
    )
    assert json.loads(found["versions.json"])["python"].startswith("3.")
    with tarfile.open(fileobj=io.BytesIO(archive(found))) as tar:
        members = tar.getmembers()
    assert {each.name for each in members} == {f"edgehub-support/{name}" for name in found}
    assert {each.mode for each in members} == {0o600}


async def test_no_token_is_in_it(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.access.tokens["pod"] = User("system:serviceaccount:shop:web")
    cloud.store.create(secret(k="djE="))
    await parts.names("/api/v1/namespaces/default/secrets?resourceVersion=0", caller=POD)
    hub = running_hub(parts)
    hub.log.attach()
    logging.getLogger("addons.test").warning(
        "sent Authorization: Bearer abc.def and eyJhbGciOi.eyJzdWIi.c2ln"
    )
    hub.log.detach()
    text = b"\n".join(files(hub).values()).decode()
    assert "sent Authorization: (hidden) and (hidden)" in text
    for each in ("djE=", f"Bearer {HUB_TOKEN}", "abc.def", "eyJ"):
        assert each not in text
