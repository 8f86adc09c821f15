"""A cloud as contract tests use it, whichever it is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tests.cloud.caller import Caller

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Cloud:
    """One of the two clouds."""

    caller: Caller

    async def make_namespace(self) -> str:
        """A new namespace, by name."""
        name = f"contract-{next(_numbers)}"
        await self.caller.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return name
