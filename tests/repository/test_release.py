"""A release: two builds are equal, and the wheel runs hub and manager in an otherwise empty environment."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from addons.settings import OPTIONS
from kube.option import VERSION
from scripts.building.release import chart, copy_sources, sbom, with_urls
from tests.repository.support.tree import PACKAGES, ROOT

NAME = f"edgehub-{VERSION}"
PACKAGE = f"kube_edgehub-{VERSION}"
MANAGER = f"edgehub-manager-{VERSION}"
WHEEL = f"{PACKAGE}-py3-none-any.whl"


def build(folder: Path, umask: int = 0o022) -> Path:
    subprocess.run(
        [sys.executable, "-m", "scripts.building.release", "--no-images", "--to", folder],
        cwd=ROOT,
        env={"PATH": "", "SOURCE_DATE_EPOCH": "1700000000"},
        check=True,
        stdout=subprocess.DEVNULL,
        umask=umask,
    )
    return folder


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("release") / "dist")


@pytest.fixture(scope="module")
def installed(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the commands in an environment with the wheel, which also sees the dependencies of the tests'
    environment."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", venv], check=True)
    scheme = {"base": str(venv), "platbase": str(venv)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
    # pip of the tests' environment installs into another one. A .pth file there is not searched for further .pth
    # files, so the checkout, which the tests' environment has by one, is invisible.
    install = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "-q"]
    offline = ["--no-index", "--no-deps", "--disable-pip-version-check", str(release / WHEEL)]
    subprocess.run([*install, *offline], check=True)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv / "bin"


def ask(program: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder without a checkout; return its output."""
    return subprocess.run(
        [program, *arguments], cwd=folder, env={"PATH": ""}, capture_output=True, text=True, check=False
    )


def test_two_builds_by_different_users_are_equal(release: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again", umask=0o077)
    first, second = (
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        for folder in (release, again)
    )
    assert first == second
    assert set(first) == {
        WHEEL,
        f"{PACKAGE}.tar.gz",
        f"{NAME}.tgz",
        f"{NAME}-manifests.tar.gz",
        f"{NAME}-requirements.txt",
        f"{NAME}-sbom.json",
        f"{MANAGER}-requirements.txt",
        f"{MANAGER}-sbom.json",
        "SHA256SUMS",
    }


def test_the_wheel_contains_only_the_packages_and_their_data(release: Path) -> None:
    with zipfile.ZipFile(release / WHEEL) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name}
    modules = {
        Path("edgehub", path.relative_to(ROOT)).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == {"edgehub/__init__.py", "edgehub/py.typed"} | modules


def test_pip_wheel_builds_the_released_wheel(release: Path, tmp_path: Path) -> None:
    """`pip wheel .` once gave a wheel with `kube` at the top level, whose installation overwrote another package."""
    copy_sources(tmp_path / "checkout")
    stale = tmp_path / "checkout" / "build" / "lib" / "edgehub"
    stale.mkdir(parents=True)
    (stale / "former.py").touch()
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [*wheel, "--disable-pip-version-check", "--wheel-dir", str(tmp_path), "."]
    subprocess.run(command, cwd=tmp_path / "checkout", check=True)
    held = []
    for folder in (release, tmp_path):
        with zipfile.ZipFile(folder / WHEEL) as built:
            held.append(
                {name for name in built.namelist() if ".dist-info/" not in name and ".data/" not in name}
            )
    assert held[0] == held[1]
    assert {name.partition("/")[0] for name in held[1]} == {"edgehub"}


@pytest.mark.parametrize(
    ("program", "arguments", "status", "message"),
    [
        ("edgehub", ["--version"], 0, f"edgehub {VERSION}"),
        ("edgehub", ["--help"], 0, "--pod-address"),
        ("edgehub", [], 2, "no cloud: give --server or --kubeconfig"),
        ("edgehub", ["doctor", "--root", "/nowhere"], 1, "failed   kubeconfig"),
        ("edgehub-manager", ["--version"], 0, f"edgehub-manager {VERSION}"),
        ("edgehub-manager", [], 2, "outside a cluster the manager needs --kubeconfig"),
    ],
)
def test_the_programs_run_from_the_wheel_without_the_checkout(
    installed: Path, tmp_path: Path, program: str, arguments: list[str], status: int, message: str
) -> None:
    done = ask(installed / program, *arguments, folder=tmp_path)
    assert done.returncode == status, done.stderr
    assert message in done.stdout + done.stderr


def test_the_installed_programs_import_the_wheels_modules(installed: Path, tmp_path: Path) -> None:
    script = "import edgehub, addons, controllers, kube; print(addons.__file__, controllers.__file__, kube.__file__)"
    done = ask(installed / "python", "-P", "-c", script, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.startswith(str(installed.parent)) for path in done.stdout.split()] == [True] * 3, done


def test_the_wheel_adds_one_top_level_name(installed: Path, tmp_path: Path) -> None:
    """Another package may be called `kube`, and must not be hidden in other processes."""
    done = ask(installed / "python", "-P", "-c", "import kube", folder=tmp_path)
    assert "No module named 'kube'" in done.stderr


@pytest.mark.parametrize(
    ("name", "lock", "known"), [(NAME, "hub", "mitmproxy"), (MANAGER, "manager", "kubernetes")]
)
def test_an_sbom_names_each_locked_package(release: Path, name: str, lock: str, known: str) -> None:
    listed = json.loads((release / f"{name}-sbom.json").read_text())["components"]
    text = (ROOT / "requirements" / f"{lock}.lock").read_text()
    assert (release / f"{name}-requirements.txt").read_text() == text
    assert len(listed) == sum("==" in line for line in text.splitlines())
    assert {known, "aiohttp"} <= {each["name"] for each in listed}


def test_a_published_release_contains_its_urls() -> None:
    address = "https://git.example/edge/edgehub"
    project = (ROOT / "pyproject.toml").read_text()
    assert with_urls(project, "") == project
    assert tomllib.loads(with_urls(project, address))["project"]["urls"] == {
        "Homepage": address,
        "Source": address,
    }
    made = yaml.safe_load(chart(address)["Chart.yaml"])
    assert (made["home"], made["sources"]) == (address, [address])
    assert "home" not in yaml.safe_load(chart()["Chart.yaml"])


def test_an_sbom_has_the_digests_of_the_packages() -> None:
    one = sbom(f"a==1 ; python_version < '4' \\\n    --hash=sha256:{'0' * 64}\n", "edgehub", "1")
    assert [(each["name"], each["version"]) for each in one["components"]] == [("a", "1")]
    assert one["components"][0]["externalReferences"][0]["hashes"] == [
        {"alg": "SHA-256", "content": "0" * 64}
    ]


def test_the_packaged_chart_equals_the_chart(release: Path) -> None:
    with tarfile.open(release / f"{NAME}.tgz") as packed:
        names = set(packed.getnames())
        policy = packed.extractfile("edgehub/files/rules-admission.yaml")
        assert policy is not None
        assert policy.read() == (ROOT / "configmaps" / "rules-admission.yaml").read_bytes()
    assert {"edgehub/Chart.yaml", "edgehub/values.schema.json", "edgehub/crds/nodepools.yaml"} <= names


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("edgehub --pod-a", ["--pod-address"]),
        ("edgehub doc", ["doctor"]),
        ("edgehub install --dry", ["--dry-run"]),
        ("edgehub explain --verb l", ["list"]),
        ("edgehub-manager --contr", ["--controllers"]),
        ("edgehub-manager rend", ["render"]),
    ],
)
def test_bash_completes_subcommands_and_flags(installed: Path, line: str, found: list[str]) -> None:
    columns = line.split()
    script = installed.parent / "share/bash-completion/completions" / columns[0]
    # Called like bash calls the function of `complete -F`.
    ask = f"""
        source {script}
        COMP_WORDS=({line}) COMP_CWORD={len(columns) - 1}
        function=$(complete -p {columns[0]}) function=${{function##*-F }} function=${{function%% *}}
        $function {columns[0]} {columns[-1]} {columns[-2]}
        printf '%s\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, check=False)
    assert done.stdout.split() == found, done.stderr


def test_zsh_finds_the_completion_function(installed: Path) -> None:
    for command in ("edgehub", "edgehub-manager"):
        text = (installed.parent / "share/zsh/site-functions" / f"_{command}").read_text()
        assert text.startswith(f"#compdef {command}\n")
        zsh = shutil.which("zsh")
        if zsh is not None:
            subprocess.run([zsh, "-n"], input=text, text=True, check=True)


def test_the_man_pages_have_every_flag(installed: Path) -> None:
    page = (installed.parent / "share/man/man1/edgehub.1").read_text().replace("\\-", "-")
    assert [each.flag for each in OPTIONS if each.flag not in page] == []
    for command in ("doctor", "install", "explain"):
        assert f"COMMAND \\fI\\,'edgehub {command}" in page
    assert os.uname().nodename not in page.split()
    page = (installed.parent / "share/man/man1/edgehub-manager.1").read_text()
    assert "edgehub\\-manager render" in page
