"""Clients that do not trust the certificate of the TLS port are counted, and reported to users."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cloud.pki import Authority
from tests.cloud.ports import LOOPBACK
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import ROOT, SLACK, Hub, started
from tests.hub.test_observe import past

FAILED = "edgehub_failed_handshakes_total"
STRANGER, MISLED, SILENT = "127.0.0.2", "127.0.0.3", "127.0.0.4"
"""Addresses of clients, which differ like those of pods."""
SERVICE = "kubernetes.default.svc"


def call(hub: Hub, address: str, context: ssl.SSLContext, name: str) -> None:
    """Complete a handshake from an address; ssl.SSLError if the client refuses the certificate."""
    with (
        socket.create_connection((LOOPBACK, hub.tls_port), SLACK, (address, 0)) as conn,
        context.wrap_socket(conn, server_hostname=name),
    ):
        pass


def leave(hub: Hub, address: str, name: str) -> None:
    """Disconnect without an alert after receiving the certificate."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with socket.create_connection((LOOPBACK, hub.tls_port), SLACK, (address, 0)) as conn:
        conn.sendall(outgoing.read())
        assert conn.recv(1)


async def test_a_client_that_refuses_the_certificate_is_counted_and_reported(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    def doctor(hub: Hub, root: Path) -> str:
        """Run the doctor on a node with this hub; return its output."""
        ports = (
            "--port",
            str(hub.port),
            "--tls-port",
            str(hub.tls_port),
            "--admin-port",
            str(hub.admin_port),
        )
        command = [sys.executable, "-m", "addons.command", "doctor", "--root", str(root), "--", *ports]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout

    async with started(Hub(tmp_path, cloud.url)) as hub:
        assert hub.metric(FAILED) == 0
        assert 'called="kubernetes",said="unknown ca"' in hub.admin("/metrics"), "each series from the start"
        strange = ssl.create_default_context(cadata=Authority().certificate.decode())
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(call, hub, STRANGER, strange, SERVICE)
        trusting = ssl.create_default_context(cafile=str(hub.authority))
        await asyncio.to_thread(call, hub, MISLED, trusting, SERVICE)
        with pytest.raises(ssl.SSLCertVerificationError, match="match"):
            await asyncio.to_thread(call, hub, MISLED, trusting, "elsewhere.example")
        await asyncio.to_thread(leave, hub, SILENT, LOOPBACK)
        for labels in (
            {"said": "unknown ca", "called": "kubernetes"},
            {"said": "bad certificate", "called": "other"},
            {"said": "closed", "called": "address"},
        ):
            await asyncio.to_thread(hub.wait_for_metric, FAILED, 1, SLACK, **labels)
        assert hub.metric(FAILED) == 3
        seen = (await past(hub, "--resource", "tls", "--since", "1h")).splitlines()
        assert len(seen) == 3, seen
        for line, called, said in zip(
            seen,
            (SERVICE, "elsewhere.example", f"{LOOPBACK}:{hub.tls_port}"),
            (f"{STRANGER} says 'unknown ca'", f"{MISLED} says 'bad certificate'", f"{SILENT} says 'closed'"),
            strict=True,
        ):
            assert f"handshake  tls {called} " in line
            assert "failed     -" in line
            assert f"{said} of the certificate for kubernetes, kubernetes.default, {SERVICE}, " in line
            assert "signed by CN=edgehub" in line
        found = await asyncio.to_thread(doctor, hub, tmp_path)
        assert f"warning  handshakes   {SERVICE}: {STRANGER} says 'unknown ca' of" in found, found
        assert found.count("warning  handshakes") == 3
        assert "(docs/rules.md)" in found


async def test_repeated_handshake_failures_do_not_flood_the_log(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    strange = ssl.create_default_context(cadata=Authority().certificate.decode())
    async with started(Hub(tmp_path, cloud.url)) as hub:
        for number in range(50):
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.to_thread(call, hub, STRANGER, strange, f"a{number}.example")
        await asyncio.to_thread(hub.wait_for_metric, FAILED, 50, SLACK)
        assert len((await past(hub, "--resource", "tls", "--since", "1h")).splitlines()) == 1
        assert sum("TLS handshake" in line for line in hub.process.lines) == 1
        # Another client at that address, for example on the host network, is still reported.
        await asyncio.to_thread(leave, hub, STRANGER, SERVICE)
        await asyncio.to_thread(hub.wait_for_metric, FAILED, 1, SLACK, said="closed")
        assert len((await past(hub, "--resource", "tls", "--since", "1h")).splitlines()) == 2
