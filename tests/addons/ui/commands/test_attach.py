"""`attach` where it cannot begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from addons.ui.commands import shell
from tests.cloud.ports import free_port


def test_a_hub_that_is_not_there_leaves_no_empty_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, admin = tmp_path / "flows.mitm", f"http://127.0.0.1:{free_port()}"
    assert shell.run(["attach", "-w", str(file), "--admin", admin]) == 1
    said = capsys.readouterr().err
    assert said.endswith(
        f"the hub at {admin} does not answer: nothing listens there: does a hub run here? "
        "--admin names another port of it\n"
    )
    assert "flows" not in said.removesuffix(said.splitlines()[-1])
    assert not file.exists()
