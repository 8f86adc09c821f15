"""Upgrades that fail, or are killed or rebooted at each step: a real systemd restores the previous hub."""

from __future__ import annotations

import pytest

from scripts.node_machine.instances import Instance
from scripts.node_machine.machine import Machine
from tests.node.support.upgrades import UNIT, Upgrades, check

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]
ENDS = "#!/bin/sh\nexit 3\n"
NEVER_READY = "#!/bin/sh\nexec sleep 600\n"


def test_a_failed_upgrade_of_the_unit_restores_the_former_hub(
    instance: Instance, node: Machine, clouds: Machine, behind_hub: None
) -> None:
    for name, text in {"ends": ENDS, "never": NEVER_READY}.items():
        node.write(f"/opt/{name}", text)
        node.run("chmod", "755", f"/opt/{name}")
    node.run("cp", "/usr/local/bin/edgehub", "/opt/good")
    upgrades = Upgrades(
        node,
        UNIT,
        "--program=/usr/local/bin/edgehub",
        "--program=/opt/good",
        ["--program=/opt/ends", "--program=/opt/never"],
    )
    check(upgrades, instance, clouds)
