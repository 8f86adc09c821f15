"""The load of `scripts/bench --rollout`: fifty nodes, five of them real installations, and the minutes of each step:
install, a bad upgrade, a good upgrade, uninstall."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.cloud.build import ensure_control_plane, ensure_helm
from tests.hub.support import rollout

REAL, LIGHT = 5, 45
WAVE = "20%"


def measure() -> None:
    """Go through the steps, and print the minutes of each when it ends."""
    programs, helm = ensure_control_plane(), ensure_helm()
    with tempfile.TemporaryDirectory() as folder:
        pool = rollout.rollout(Path(folder), programs, helm, real=REAL, light=LIGHT, wave=WAVE)
        print(f"{REAL} real and {LIGHT} light nodes, {WAVE} at a time:", flush=True)
        with pool as made:
            rollout.run(made, lambda step, minutes: print(f"{step:14}{minutes:6.1f} min", flush=True))
