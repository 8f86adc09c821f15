"""A hub in its own process, as `scripts/hub` starts it, on free loopback ports."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Self

import urllib3

from kube.json_type import Json
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.processes import Process, ProcessFailedError, sum_of_samples
from tests.support.polling import eventually

START_TIMEOUT = 60.0
"""Seconds to readiness; 1.5 on idle cores."""
SLACK = 30.0
"""Seconds that a busy machine may add to an immediate event. A bug would take a minute or more."""
ROOT = Path(__file__).parents[3]
READY = "/readyz?exclude=node"
"""The readiness condition of the tests, as few of their clouds have a Node of the hub."""

ACTIVATION = (sys.executable, "-m", "tests.hub.support.activation")


class Hub:
    """A hub process, as a context manager; `restart` preserves ports and state."""

    def __init__(
        self,
        folder: Path,
        server: str,
        *,
        node: str = "node-1",
        kubeconfig: Path | None = None,
        flags: tuple[str, ...] = (),
        program: tuple[str, ...] = (),
        inside: tuple[str, ...] = (),
        env: Mapping[str, str] = MappingProxyType({}),
        is_handed_sockets: bool = False,
    ) -> None:
        """Prepare a hub.

        `program` is a module with arguments to run instead of `scripts/hub`; `inside` is the prefix of the command,
        for example to run it on its own disk; `env` is added to the environment. With `is_handed_sockets` a parent
        process owns the sockets of the plain and the TLS port, and restarts the hub at SIGHUP.
        """
        self.folder = folder
        self.node = node
        self.port, self.tls_port, self.admin_port = free_port(), free_port(), free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.tls_url = f"https://{LOOPBACK}:{self.tls_port}"
        self.admin_url = f"http://{LOOPBACK}:{self.admin_port}"
        self.state = folder / "state"
        self._flags = (
            *("--server", server, "--node", node, "--state-dir", str(self.state), "--peer-port", "0"),
            *(
                "--port",
                str(self.port),
                "--tls-port",
                str(self.tls_port),
                "--admin-port",
                str(self.admin_port),
            ),
            *(("--kubeconfig", str(kubeconfig)) if kubeconfig else ()),
            *flags,
        )
        self._program = program
        self._inside = (*ACTIVATION, *self._addresses(), "--") if is_handed_sockets else inside
        self._env = env
        self._process: Process | None = None
        self._http = urllib3.PoolManager(retries=False, timeout=10.0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def process(self) -> Process:
        if self._process is None:
            raise RuntimeError("the hub is not running")
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def authority(self) -> Path:
        return self.state / "pki" / "ca.crt"

    @property
    def command(self) -> list[str]:
        """Return the command that starts the hub, for a caller that does not use `start`."""
        started = [sys.executable, "-m", *self._program] if self._program else [str(ROOT / "scripts" / "hub")]
        return [*self._inside, *started, *self._flags]

    def _addresses(self) -> list[str]:
        return [f"{LOOPBACK}:{port}" for port in (self.port, self.tls_port)]

    def use(self, checkout: Path) -> None:
        """Run the program of another checkout from the next start on."""
        self._program, self._env = ("addons.command",), {"PYTHONPATH": str(checkout)}

    def start(self, *, ready: bool = True) -> None:
        """Start the hub; return when it is ready, or, if not required, when it responds at all."""
        self.launch()
        try:
            self.wait_until_ready(READY if ready else "/healthz")
        except BaseException:
            self.stop()  # the caller has no hub to stop yet
            raise

    def launch(self) -> None:
        """Start the hub, and return at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = Process("hub", self.command, self.folder, {"PYTHONPATH": str(ROOT), **self._env})

    def wait_until_ready(self, path: str = READY) -> None:
        """Return when the admin port answers 200 to this path."""
        self.process.wait_until(lambda: self._answers(path), "become ready", START_TIMEOUT)

    async def started_elsewhere(self) -> None:
        """Return when the hub, which another program has started, is ready."""
        await asyncio.to_thread(eventually, partial(self._answers, READY), "it is ready", START_TIMEOUT)

    def stop(self) -> int:
        """Send SIGTERM; return the exit status."""
        process, self._process = self._process, None
        return process.stop() if process is not None else 0

    def kill(self) -> None:
        self.process.kill()
        self._process = None

    def admin(self, path: str) -> str:
        return self._http.request("GET", self.admin_url + path).data.decode()

    def debug(self, page: str) -> object:
        return self._http.request(
            "GET", f"{self.admin_url}/debug/{page}", headers={"Accept": "application/json"}
        ).json()

    def sources(self) -> list[Json]:
        found = self.debug("sources")
        assert isinstance(found, list)
        return found

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples with these labels; 0 if there is none."""
        return sum_of_samples(self.admin("/metrics"), name, **labels)

    async def logged(self, pattern: str) -> None:
        await asyncio.to_thread(self.process.wait_for_line, pattern, 20)

    def wait_for_metric(self, name: str, wanted: float, timeout: float, **labels: str) -> None:
        """Poll until a metric has a value: another process sends no notification."""
        eventually(lambda: self.metric(name, **labels) == wanted, f"{name} is {wanted:g}", timeout)

    def wait_until_stored(self, text: str, count: int, timeout: float = SLACK) -> None:
        """Poll until this many values on disk contain this text: another process sends no notification."""
        eventually(lambda: self._count_stored(text) >= count, f"{count} values hold {text}", timeout)

    def _count_stored(self, text: str) -> int:
        database = (self.state / "cache" / "cache.db").as_uri()
        with contextlib.closing(sqlite3.connect(f"{database}?mode=ro", uri=True)) as disk:
            values = disk.execute("SELECT count(*) FROM Cache WHERE instr(value, ?)", (text.encode(),))
            return int(values.fetchone()[0])

    def _answers(self, path: str) -> bool:
        try:
            return self._http.request("GET", self.admin_url + path).status == 200
        except urllib3.exceptions.HTTPError:
            return False


__all__ = ["Hub", "ProcessFailedError"]


@contextlib.asynccontextmanager
async def started(hub: Hub, *, ready: bool = True) -> AsyncIterator[Hub]:
    """Run a hub; it is ready unless not required."""
    try:
        await asyncio.to_thread(hub.start, ready=ready)
        yield hub
    finally:
        await asyncio.to_thread(hub.stop)


def run_scene(isolated: list[str], scene: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of tests/hub/support in its own network namespaces."""
    command = [*isolated, sys.executable, "-m", f"tests.hub.support.{scene}", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=400)
