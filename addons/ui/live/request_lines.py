"""Has the log, and the terminal of mitmdump, get a line for each request."""

from __future__ import annotations

import logging
import sys
from functools import partial

from mitmproxy import ctx

from addons.settings import Settings
from addons.telemetry.observation import Observation, line
from addons.telemetry.observations import Observations

logger = logging.getLogger(__name__)


def tell_log_and_terminal(observations: Observations, settings: Settings) -> None:
    """The log where it is asked for, and the terminal where mitmdump prints its own lines there."""
    if settings.access_log:
        observations.listen(_log)
    if ctx.master.addons.get("dumper") is not None and ctx.options.flow_detail:
        observations.listen(partial(_print, has_colours=sys.stdout.isatty()))


def _log(seen: Observation) -> None:
    if not seen.is_event:
        logger.info("%s", line(seen))


def _print(seen: Observation, *, has_colours: bool) -> None:
    if not seen.is_event:
        print(line(seen, has_colours=has_colours), flush=True)
