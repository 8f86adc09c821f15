"""The manifests that the doctor names can be had from the program alone."""

from __future__ import annotations

import pytest

from addons.install.commands import run
from addons.install.manifests import FOLDER, names
from addons.views.source_log import RBAC, RBAC_OF_NODES


def test_all_are_listed_with_what_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["manifests"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names()
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("path", [RBAC, RBAC_OF_NODES])
def test_what_the_doctor_names_is_printed_as_it_is(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = path.rpartition("/")[2]
    for given in (name, name.removesuffix(".yaml")):
        assert run(["manifests", given]) == 0
        assert capsys.readouterr().out == (FOLDER / name).read_text()


def test_others_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["manifests", "../../pyproject"]) == 1
    assert "there is no manifest '../../pyproject': there are autonomy, " in capsys.readouterr().err
