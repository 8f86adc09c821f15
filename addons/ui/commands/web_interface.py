"""Runs mitmweb, for the hub itself or attached to one, and reports a port in use in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def run_web(arguments: Sequence[str]) -> None:
    """Run mitmweb until it ends. If its port is in use, exit with status 1 and a line with the remedy."""
    from mitmproxy.tools import main as programs  # noqa: PLC0415 - the heaviest of mitmproxy's modules

    try:
        programs.mitmweb(arguments)
    except OSError as error:
        address = str(error.strerror).partition(" with ")[0]
        sys.exit(
            f"edgehub: {address}: {os.strerror(error.errno or 0)}; stop the process that has the port, or choose "
            "another one: -- --set web_port=PORT"
        )
