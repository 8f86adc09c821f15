"""Queries by commands in an attached interface: by the hub's admin port, in a thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from mitmproxy import ctx

from addons.ui.commands.asking import JSON, open_page


class HubElsewhere:
    """Implementation of `addons.ui.commands.console_commands.AskedHub` for the hub of another process."""

    def report(self, name: str) -> Any:
        return _ask(name, {}, None)

    async def ask(self, name: str, query: Mapping[str, str], body: bytes | None = None) -> Any:
        return await asyncio.to_thread(_ask, name, query, body)


def _ask(name: str, query: Mapping[str, str], body: bytes | None) -> Any:
    """Return the hub's answer: a JSON value, a text, or a file. NoAnswer as in `open_page`."""
    with open_page(ctx.options.edgehub_admin, name, query, accept=f"{JSON}, */*", body=body) as answer:
        said, kind = answer.read(), answer.headers.get_content_type()  # type: ignore[attr-defined]  # an HTTPResponse
    return json.loads(said) if kind == JSON else said if kind == "application/gzip" else said.decode()
