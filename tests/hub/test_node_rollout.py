"""A pool of two real and six light nodes joins, meets a bad version, rolls forward and leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hub.support import rollout

pytestmark = [pytest.mark.real, pytest.mark.since(36, "MutatingAdmissionPolicy")]


def test_nodes_join_roll_back_roll_forward_and_leave(
    cloud_programs: dict[str, Path], helm: Path, tmp_path: Path
) -> None:
    """Among them: a node whose doctor finds a fault, a node whose link is cut, and a killed manager."""
    with rollout.rollout(tmp_path, cloud_programs, helm, real=2, light=6, wave="5") as pool:
        rollout.run(pool, lambda step, minutes: print(f"{step}: {minutes:.1f} min"))
