"""The parts of the pool role, as the settings ask for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from addons.certificates.asked_certificate import AskedCertificate
from addons.certificates.serving_certificate import GivenCertificate
from addons.pool.pool_assembly import join_pool
from addons.settings import parse_settings
from kube.concurrency.pulse import Pulse
from kube.http.kubeconfig import NO_CREDENTIALS
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.scripted_client import ScriptedClient
from tests.addons.test_settings import values
from tests.cloud.scriptable import ScriptableCloud


async def closed(_wanted: bool) -> None:
    """The port stays as it is."""


@pytest.mark.parametrize(
    ("given", "kind"), [({}, AskedCertificate), ({"peer_cert": "/c", "peer_key": "/k"}, GivenCertificate)]
)
async def test_the_certificate_is_the_operators_or_asked_for(
    given: dict[str, Any], kind: type, tmp_path: Path
) -> None:
    settings = replace(parse_settings(values(**given)), state_dir=tmp_path)
    async with ScriptableCloud() as cloud, HubParts(cloud) as parts:
        client = ScriptedClient(lambda _: {})
        pool = join_pool(
            settings,
            NO_CREDENTIALS,
            client,
            (parts.inputs, parts.sources, parts.serving),
            (lambda: True, Pulse()),
            lambda _: 0,
            closed,
        )
        assert isinstance(pool._certificate, kind)
        assert pool.serving is not None
        assert parts.sources.upstream_of == pool.following.reader_of
        pool.close()
