"""A pool of two real and six light nodes gets hubs, tries a bad version, upgrades and removes the hubs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hub.support import rollout

pytestmark = [pytest.mark.real, pytest.mark.since(36, "MutatingAdmissionPolicy")]


def test_hubs_of_a_pool_are_installed_rolled_back_upgraded_and_removed(
    cloud_programs: dict[str, Path], helm: Path, tmp_path: Path
) -> None:
    """This includes a node whose doctor finds an error, a node whose link is cut, and a killed manager."""
    with rollout.rollout(tmp_path, cloud_programs, helm, real=2, light=6, wave="5") as pool:
        rollout.run(pool, lambda step, minutes: print(f"{step}: {minutes:.1f} min"))
