"""Installations with other flags that fail or are killed, also without a cloud: systemd restores the previous hub.

They run before clocks are moved: `edgehub install` refuses a node whose clock is not the cloud's.
"""

from __future__ import annotations

import pytest

from scripts.node_machine.machine import Machine
from tests.node.support.upgrades import UNIT, Upgrades

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]


def test_an_installation_with_flags_that_fail_restores_the_former_hub(
    node: Machine, clouds: Machine, behind_hub: None
) -> None:
    """With a cloud and without, and where the command is killed; kubelet follows each time."""
    upgrades = Upgrades(node, UNIT, "", "", [])
    flags = ("--", "--port=10361", "--tls-port=10368")
    upgrades.install_flags_that_fail(clouds, *flags)
    upgrades.die_amid_installation(*flags)
