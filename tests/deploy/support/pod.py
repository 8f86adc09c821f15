"""A pod without a kubelet: the container of a pod's spec, with its very command line and environment."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.deploy.support import sandbox
from tests.deploy.support.relay import connect_file, end, file_listener, relay

START_TIMEOUT = 60.0
"""Seconds to readiness; 3 on idle cores."""


class Pod:
    """The first container of a Deployment's pods, whose volumes are empty; a context manager, in which it runs.

    `path` is the PATH that the image has. Without a `root`, the image's, the container sees the machine's own files.
    Either is read-only, and the network is the container's own; the API server is on its loopback.
    """

    def __init__(
        self,
        cloud: RealCloud,
        deployment: Mapping[str, Any],
        folder: Path,
        path: str,
        root: Path | None = None,
    ) -> None:
        self._folder = folder
        self._listener = file_listener(folder / "api")
        relay(self._listener, lambda: socket.create_connection((cloud.host, cloud.port)))
        pod = deployment["spec"]["template"]["spec"]
        container = pod["containers"][0]
        self._namespace = str(deployment["metadata"]["namespace"])
        environment = {
            "PATH": path,
            "KUBERNETES_SERVICE_HOST": sandbox.LOOPBACK,
            "KUBERNETES_SERVICE_PORT": str(sandbox.API_PORT),
            **{each["name"]: each["value"] for each in container.get("env", [])},
        }
        account = folder / "account"
        account.mkdir()
        (account / "token").write_text(cloud.token(self._namespace, pod["serviceAccountName"]))
        (account / "ca.crt").write_bytes(cloud.authority.certificate)
        (account / "namespace").write_text(self._namespace)
        spec = {
            "command": [*container["command"], *container.get("args", [])],
            "environment": [f"{name}={value}" for name, value in environment.items()],
            "root": str(root or ""),
            "user": pod["securityContext"]["runAsUser"] if root else None,
            "account": str(account),
            "volumes": [each["mountPath"] for each in container.get("volumeMounts", [])],
            "sockets": str(folder),
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        self._process: Process | None = None

    def __enter__(self) -> Self:
        program = [sys.executable, "-m", "tests.deploy.support.sandbox"]
        command = [*isolated(), *program, str(self._folder / "spec.json")]
        repository = str(Path(__file__).parents[3])
        self._process = Process("pod", command, self._folder, env={"PYTHONPATH": repository})
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.running:
            self._process.stop()
        end(self._listener)

    def wait_until_ready(self) -> None:
        """As its readiness probe asks."""
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT
        while self.status("/readyz") != 200:
            if not self._process.running or time.monotonic() > deadline:
                raise self._process.failure("is not ready")
            time.sleep(0.05)

    def wait_for_line(self, pattern: str) -> str:
        """The first line of its log that the pattern is found in."""
        assert self._process is not None
        return self._process.wait_for_line(pattern, START_TIMEOUT)

    def status(self, path: str) -> int:
        """Of a GET on the admin port; 0 while nobody answers."""
        connection = http.client.HTTPConnection("pod", timeout=10)
        try:
            connection.sock = connect_file(self._folder / "admin")
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


def isolated() -> list[str]:
    """What a command begins with that has mounts and a network of its own; skips the test where there is no way."""
    own = ["unshare", "--mount", "--net"]
    if os.geteuid() != 0:
        own += ["--user", "--map-root-user"]
    try:
        subprocess.run([*own, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine allows no mount and network namespaces")
    return own
