"""A cloud as contract tests use it, whichever it is: an HTTP caller and a kubectl."""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from tests.cloud.caller import PATIENCE, Caller

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Cloud:
    """One of the two clouds."""

    caller: Caller
    kubeconfig: Path

    async def make_namespace(self) -> str:
        """A new namespace, by name."""
        name = f"contract-{next(_numbers)}"
        await self.caller.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return name


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl against one of the two."""

    program: Path
    kubeconfig: Path
    namespace: str

    async def __call__(self, *args: str, stdin: str = "") -> str:
        """Run kubectl, and return what it prints; AssertionError with its complaints when it fails."""
        process = await self.start(*args)
        async with asyncio.timeout(PATIENCE):
            out, complaints = await process.communicate(stdin.encode())
        assert process.returncode == 0, complaints.decode()
        return out.decode()

    async def start(self, *args: str) -> asyncio.subprocess.Process:
        """Start it; the caller ends it."""
        return await asyncio.create_subprocess_exec(
            self.program,
            f"--kubeconfig={self.kubeconfig}",
            f"--namespace={self.namespace}",
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": str(self.kubeconfig.parent)},
        )
