"""A hub whose node has several uplinks, before a cloud that sees by which one it is called."""

from __future__ import annotations

from pathlib import Path

from tests.hub.support.process import told


def test_a_node_goes_by_the_uplink_that_leads_on_and_back_to_a_better_one(
    isolated: list[str], tmp_path: Path
) -> None:
    done = told(isolated, "two_uplinks", tmp_path)
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
