"""The construction of a hub's parts, with certificates signed by the cluster."""

from __future__ import annotations

import asyncio
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest

from addons.parts import disabled_by, filter_modules, filters_of
from addons.rules.table import OFF_IN_CLOUD_MODE
from addons.settings import Settings, parse_settings
from tests.addons.support.filter_plugins import text_of, write
from tests.addons.test_assembly import LOOPBACK, running
from tests.cloud.pki import Authority
from tests.cloud.scriptable import ScriptableCloud


def settings(**given: Any) -> Settings:
    return parse_settings({"server": "https://a:6443", **given})


@pytest.mark.parametrize(
    ("given", "disabled"),
    [
        ({}, frozenset()),
        ({"disabled_filters": "endpoints, masterservice"}, {"endpoints", "masterservice"}),
        ({"mode": "cloud"}, OFF_IN_CLOUD_MODE),
        ({"mode": "cloud", "disabled_filters": "endpoints"}, {*OFF_IN_CLOUD_MODE, "endpoints"}),
    ],
)
def test_disabled_filters_are_not_built(given: dict[str, Any], disabled: set[str]) -> None:
    assert disabled_by(settings(**given)) == disabled


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("servicetopology", {"topology_order": "any"}, "any"),
        ("servicetopology", {"topology_order": "preferred"}, "preferred"),
        (
            "localendpoint",
            {"local_endpoint": "169.254.20.11", "local_port": 51003},
            "('169.254.20.11',), port=51003",
        ),
    ],
)
def test_options_reach_their_filters(name: str, given: dict[str, Any], said: str) -> None:
    (found,) = [each for each in filters_of(settings(**given)) if each.name == name]
    assert said in repr(found)


def test_filters_of_a_file_are_added_to_the_builtin_ones(tmp_path: Path) -> None:
    file = tmp_path / "acme.py"
    write(file, text_of("web"))
    given = settings(filter_module=str(file), disabled_filters="acme-hide")
    assert filter_modules(given).filters[:-1] == filters_of(given)
    with pytest.raises(ValueError, match="hub_disabled_filters: there is no filter 'acme-show'"):
        filter_modules(settings(filter_module=str(file), disabled_filters="acme-show"))


async def test_an_address_set_while_the_hub_runs_is_added_to_the_certificate(
    tmp_path: Path, cloud: ScriptableCloud
) -> None:
    async def shown_addresses(port: int, trusting: ssl.SSLContext) -> set[str]:
        """Return the addresses in the certificate that a port presents."""
        _, writer = await asyncio.open_connection(LOOPBACK, port, ssl=trusting)
        names = writer.get_extra_info("peercert")["subjectAltName"]
        writer.close()
        return {name for kind, name in names if kind == "IP Address"}

    async def shows(port: int, trusting: ssl.SSLContext, address: str) -> bool:
        """Return True if a port presents a certificate with an address within some seconds."""
        for _ in range(100):
            if address in await shown_addresses(port, trusting):
                return True
            await asyncio.sleep(0.05)
        return False

    async with running(tmp_path, server=cloud.url) as hub:
        await hub.ready()
        hub.master.options.update(hub_pod_address="169.254.2.1")
        folder = tmp_path / "state" / "pki"
        assert stat.S_IMODE((folder / "serving.key").stat().st_mode) == 0o600
        trusting = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        port = hub.given["tls_port"]
        assert await shows(port, trusting, "169.254.2.1")


async def test_the_operators_certificate_needs_no_local_ca(tmp_path: Path, cloud: ScriptableCloud) -> None:
    certificate, key = Authority().issue_server("x", [LOOPBACK]).write(tmp_path, "mine")
    async with running(tmp_path, server=cloud.url, tls_cert=str(certificate), tls_key=str(key)) as hub:
        await hub.ready()
        assert not (tmp_path / "state" / "pki").exists()
