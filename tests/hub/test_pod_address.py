"""A pod with a network of its own reaches the hub at the address that the hub makes."""

from __future__ import annotations

from pathlib import Path

from tests.hub.support.process import told


def test_a_pod_reaches_the_hub_at_an_address_of_its_own_by_the_clusters_ca(
    isolated: list[str], tmp_path: Path
) -> None:
    done = told(isolated, "two_networks", tmp_path / "state")
    assert done.stdout.splitlines() == [
        "169.254.2.1 HTTP/1.1",
        "fd00::2:1 HTTP/1.1",
        "every file is as it was; the state folder is kept, and may be deleted",
        "left:",
    ], done.stderr
    assert "pods reach the hub at 169.254.2.1, fd00::2:1 on edgehub0" in done.stderr
