"""A release: two builds are equal, and the wheel alone runs hub and manager in an empty environment."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from addons.settings import version
from scripts.release_program import sbom
from tests.repository.support.tree import ROOMS, ROOT

NAME = f"edgehub-{version()}"
WHEEL = f"{NAME}-py3-none-any.whl"


def build(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "scripts.release_program", "--to", folder],
        cwd=ROOT,
        env={"PATH": "", "SOURCE_DATE_EPOCH": "1700000000"},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return folder


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("release") / "dist")


@pytest.fixture(scope="module")
def installed(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that holds the wheel, and sees the dependencies of the tests' own."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", venv], check=True)
    scheme = {"base": str(venv), "platbase": str(venv)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
    # pip of the tests' environment installs into another one; what follows a .pth is not looked at for .pth files, so
    # the checkout, which the tests' environment has by one, is not seen.
    install = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "-q"]
    offline = ["--no-index", "--no-deps", "--disable-pip-version-check", str(release / WHEEL)]
    subprocess.run([*install, *offline], check=True)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv / "bin"


def ask(program: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command's words, started where no checkout is."""
    return subprocess.run(
        [program, *arguments], cwd=folder, env={"PATH": ""}, capture_output=True, text=True, check=False
    )


def test_two_builds_are_equal(release: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again")
    first, second = (
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        for folder in (release, again)
    )
    assert first == second
    assert set(first) == {
        WHEEL,
        f"{NAME}.tar.gz",
        f"{NAME}-manifests.tar.gz",
        f"{NAME}-requirements.txt",
        f"{NAME}-sbom.json",
        "SHA256SUMS",
    }


def test_the_wheel_holds_the_rooms_and_what_they_read_and_nothing_else(release: Path) -> None:
    with zipfile.ZipFile(release / WHEEL) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    there = {
        path.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == there


@pytest.mark.parametrize(
    ("program", "arguments", "status", "words"),
    [
        ("edgehub", ["--version"], 0, f"edgehub {version()}"),
        ("edgehub", ["--help"], 0, "--pod-address"),
        ("edgehub", [], 2, "say where the cloud is: --server or --kubeconfig"),
        ("edgehub", ["doctor", "--root", "/nowhere"], 1, "failed   kubeconfig"),
        ("edgehub-manager", ["--version"], 0, f"edgehub-manager {version()}"),
        ("edgehub-manager", [], 2, "outside a cluster the manager needs --kubeconfig"),
    ],
)
def test_the_wheel_alone_runs_the_programs(
    installed: Path, tmp_path: Path, program: str, arguments: list[str], status: int, words: str
) -> None:
    done = ask(installed / program, *arguments, folder=tmp_path)
    assert done.returncode == status, done.stderr
    assert words in done.stdout + done.stderr


def test_the_wheel_is_what_runs(installed: Path, tmp_path: Path) -> None:
    script = "import addons, controllers, kube; print(addons.__file__, controllers.__file__, kube.__file__)"
    done = ask(installed / "python", "-P", "-c", script, folder=tmp_path)
    assert all(path.startswith(str(installed.parent)) for path in done.stdout.split()), done


def test_the_sbom_names_each_locked_package_and_its_digests(release: Path) -> None:
    listed = json.loads((release / f"{NAME}-sbom.json").read_text())["components"]
    lock = (ROOT / "requirements" / "hub.lock").read_text()
    assert len(listed) == sum("==" in line for line in lock.splitlines())
    assert {"mitmproxy", "aiohttp"} <= {each["name"] for each in listed}
    one = sbom(f"a==1 ; python_version < '4' \\\n    --hash=sha256:{'0' * 64}\n", "1")
    assert [(each["name"], each["version"]) for each in one["components"]] == [("a", "1")]
    assert one["components"][0]["externalReferences"][0]["hashes"] == [
        {"alg": "SHA-256", "content": "0" * 64}
    ]
