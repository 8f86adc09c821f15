"""The certificate of the TLS port of a hub that runs."""

from __future__ import annotations

import asyncio
import ssl
import stat
from pathlib import Path

from tests.addons.test_assembly import LOOPBACK, running
from tests.cloud.pki import Authority
from tests.cloud.scriptable import ScriptableCloud


async def test_an_address_that_is_set_under_a_running_hub_is_in_the_certificate_soon(
    tmp_path: Path, cloud: ScriptableCloud
) -> None:
    async with running(tmp_path, server=cloud.url) as hub:
        await hub.ready()
        hub.master.options.update(hub_pod_address="169.254.2.1")
        folder = tmp_path / "state" / "pki"
        assert stat.S_IMODE((folder / "serving.key").stat().st_mode) == 0o600
        trusting = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        port = hub.given["tls_port"]
        assert await shows(port, trusting, "169.254.2.1")


async def shows(port: int, trusting: ssl.SSLContext, address: str) -> bool:
    """Whether a port shows a certificate with an address within some seconds."""
    for _ in range(100):
        if address in await shown_addresses(port, trusting):
            return True
        await asyncio.sleep(0.05)
    return False


async def shown_addresses(port: int, trusting: ssl.SSLContext) -> set[str]:
    """The addresses in the certificate that a port shows."""
    _, writer = await asyncio.open_connection(LOOPBACK, port, ssl=trusting)
    names = writer.get_extra_info("peercert")["subjectAltName"]
    writer.close()
    return {name for kind, name in names if kind == "IP Address"}


async def test_or_the_operators(tmp_path: Path, cloud: ScriptableCloud) -> None:
    certificate, key = Authority().issue_server("x", [LOOPBACK]).write(tmp_path, "mine")
    async with running(tmp_path, server=cloud.url, tls_cert=str(certificate), tls_key=str(key)) as hub:
        await hub.ready()
        assert not (tmp_path / "state" / "pki").exists()
