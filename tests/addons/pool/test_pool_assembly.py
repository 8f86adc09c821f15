"""The parts of the pool role, as the settings ask for them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from addons.certificates.asked_certificate import AskedCertificate
from addons.certificates.serving_certificate import GivenCertificate
from addons.link.link import Link
from addons.pool.pool_assembly import announce_no_port, join_pool
from addons.rules.in_force import RulesInForce
from addons.settings import parse_settings
from kube.http.kubeconfig import NO_CREDENTIALS
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.scripted_client import Asked, ScriptedClient
from tests.addons.test_settings import values
from tests.cloud.scriptable import ScriptableCloud


async def closed(_wanted: bool) -> None:
    """The port stays as it is."""


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, AskedCertificate),
        ({"peer_cert": "/c", "peer_key": "/k"}, GivenCertificate),
        ({"peer_clients": "nodes", "mode": "cloud", "peer_cert": "/c", "peer_key": "/k"}, GivenCertificate),
    ],
)
async def test_the_certificate_is_the_operators_or_asked_for_and_a_relay_announces_nothing(
    given: dict[str, Any], kind: type, tmp_path: Path
) -> None:
    settings = replace(parse_settings(values(**given)), state_dir=tmp_path)
    async with ScriptableCloud() as cloud, HubParts(cloud) as parts:
        client = ScriptedClient(lambda _: {})
        rules = RulesInForce((), frozenset(), lambda _problem, _uid: None)
        pool = join_pool(
            settings,
            NO_CREDENTIALS,
            client,
            (parts.inputs, parts.sources, parts.serving, rules),
            Link(),
            closed,
            lambda _connection, _why: None,
        )
        assert isinstance(pool.port.certificate, kind)
        assert (pool.port.announcement is None) is (settings.peer_clients == "nodes")
        assert parts.sources.upstream_of == pool.following.reader_of
        pool.close()


@pytest.mark.parametrize(("kept", "written"), [(True, ["/api/v1/nodes/n1"]), (False, [])])
async def test_a_hub_without_a_peer_port_takes_back_what_one_with_it_announced(
    kept: bool, written: list[str], tmp_path: Path
) -> None:
    settings = replace(parse_settings(values(peer_port=0)), state_dir=tmp_path, node="n1")
    if kept:
        (tmp_path / "pki").mkdir()
        (tmp_path / "pki" / "peer.pem").touch()
    told = asyncio.Event()

    def answer(_: Asked) -> dict[str, Any]:
        told.set()
        return {}

    client = ScriptedClient(answer)
    telling = asyncio.create_task(announce_no_port(settings, client))
    await (told.wait() if kept else telling)
    assert [each.path for each in client.asked] == written
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
