"""All checks of h2spec, including strict ones, at the TLS port of a hub. Go builds h2spec, so they need `--real`."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.cloud.build import H2SPEC, ensure_binaries
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub, started


@pytest.fixture(scope="module")
def h2spec() -> Path:
    return ensure_binaries(recipe=H2SPEC)["h2spec"]


@pytest.mark.real
async def test_the_tls_port_passes_each_check_of_h2spec(
    h2spec: Path, cloud: ScriptableCloud, tmp_path: Path
) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "hub.kubeconfig", cloud.url)
    relayed = "/version"
    async with started(Hub(tmp_path, cloud.url, kubeconfig=kubeconfig)) as hub:
        flags = "--strict", "--tls", "--insecure", "--port", str(hub.tls_port), "--path", relayed
        done = await asyncio.to_thread(
            subprocess.run, [str(h2spec), *flags], capture_output=True, text=True, check=False
        )
    assert done.stdout.strip().endswith("146 tests, 146 passed, 0 skipped, 0 failed"), done.stdout
