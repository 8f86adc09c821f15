"""Hubs in separate networks: a node with several uplinks, and a pod that calls the pod address added by the hub."""

from __future__ import annotations

from pathlib import Path

from tests.hub.support.process import run_scene


def test_a_node_uses_the_working_uplink_and_returns_to_a_better_one(
    isolated: list[str], tmp_path: Path
) -> None:
    done = run_scene(isolated, "two_uplinks", tmp_path)
    assert done.stdout.splitlines() == [
        "at first: everything goes by wan1",
        "dropped: everything goes by wan2",
        "dropped no longer: everything goes by wan1",
        "refused: everything goes by wan2",
        "refused no longer: everything goes by wan1",
        "down: everything goes by wan2",
        "down no longer: everything goes by wan1",
        "the watch went on without a list",
    ], done.stderr
    print(*(each for each in done.stderr.splitlines() if ": after " in each), sep="\n")


def test_a_pod_reaches_the_hub_at_the_pod_address_and_trusts_the_clusters_ca(
    isolated: list[str], tmp_path: Path
) -> None:
    done = run_scene(isolated, "two_networks", tmp_path / "state")
    *answers, fleet, files, left = done.stdout.splitlines()
    assert answers == ["169.254.2.1 HTTP/1.1", "fd00::2:1 HTTP/1.1"], done.stderr
    assert fleet.startswith("`edgehub fleet` still lists the hub: "), "there is no cloud"
    assert files == "every file is as it was; the state folder is kept, and may be deleted"
    assert left == "left:"
    assert "pods reach the hub at 169.254.2.1, fd00::2:1 on edgehub0" in done.stderr
