"""`scripts/environment` on machines of every kind: fakes of Python and pip record its calls."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.repository.support.tree import ROOT

TOOLS = (
    "awk",
    "bash",
    "cat",
    "cksum",
    "dirname",
    "env",
    "mkdir",
    "mv",
    "readlink",
    "rm",
    "sort",
    "tail",
    "tee",
)
"""All programs that the scripts need besides Python."""
PACKAGES = ("addons", "controllers", "kube")
"""The packages of the project."""


class Machine:
    """A machine with TOOLS and, once installed, a Python that records its calls and whose pip does nothing."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "check out"
        self.path = folder / "bin"
        self.calls = folder / "calls"
        self.home = folder / "home"
        for path in (self.root / "scripts", self.root / "requirements", self.path, self.home):
            path.mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "environment", self.root / "scripts")
        for package in PACKAGES:
            (self.root / package).mkdir()
            (self.root / package / "__init__.py").touch()
        for name in (
            "pyproject.toml",
            "requirements/hub.lock",
            "requirements/manager.lock",
            "requirements/test.lock",
            "requirements/go.lock",
        ):
            (self.root / name).write_text(f"# {name}\n")
        for tool in TOOLS:
            (self.path / tool).symlink_to(shutil.which(tool) or tool)

    def install(
        self,
        name: str,
        *,
        version: str = "(3, 13)",
        venv: bool = True,
        abi: str = "",
        pip: str = "true",
        at: Path | None = None,
    ) -> None:
        """Put a Python on the PATH, or elsewhere: its version, whether it has venv, its ABI, and the effect of its
        pip."""
        program = (at or self.path) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        missing = "" if venv else "sys.modules['ensurepip'] = None\n"
        if abi:
            missing += f"__import__('sysconfig').get_config_vars()['SOABI'] = '{abi}'\n"
        program.write_text(
            f"""#!/bin/bash
            PATH={os.defpath}
            echo "{name} $*" >>"{self.calls}"
            case "$*" in
            *"-m venv"*) mkdir -p "${{@: -1}}/bin" && cp "$0" "${{@: -1}}/bin/python" ;;
            *"-m pip"*) {pip} ;;
            *"-m compileall"*) exec {sys.executable} "$@" ;;
            *) exec {sys.executable} -I -c "import sys; sys.version_info = {version}; {missing}
${{@: -1}}" ;;
            esac
            """.replace("            ", "")
        )
        program.chmod(0o755)

    def start(self, *sets: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Create the environment with the sets; print the interpreter that was found."""
        return subprocess.run(
            self.command(*sets), env=self.environ(environ), capture_output=True, text=True, check=False
        )

    def command(self, *sets: str) -> list[str]:
        """Return a script that requires the sets."""
        source = f". '{self.root}/scripts/environment'; environment {' '.join(sets)}; printf %s \"$python\""
        return ["bash", "-c", source]

    def environ(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of this machine."""
        return {"PATH": str(self.path), "HOME": str(self.home), **more}

    def installed(self) -> list[str]:
        """Return the installations requested from pip since the last call: locks, and `project`."""
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        wanted = [
            call.rsplit("/", 1)[-1] if ".lock" in call else "project" for call in calls if "-m pip" in call
        ]
        return [name.removesuffix(".lock") for name in wanted]


@pytest.fixture
def bare(tmp_path: Path) -> Machine:
    """Return a machine without Python."""
    return Machine(tmp_path)


@pytest.fixture
def machine(bare: Machine) -> Machine:
    """Return a machine with the newest Python."""
    bare.install("python3.13")
    return bare


def test_the_first_start_installs_and_the_second_does_nothing(machine: Machine) -> None:
    first = machine.start("hub")
    assert first.returncode == 0, first.stderr
    assert first.stdout == f"{machine.root}/.venv/bin/python"
    assert "making the environment" in first.stderr
    assert "no wheel" not in first.stderr
    assert machine.installed() == ["hub", "project"]
    second = machine.start("hub")
    assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, "")
    assert machine.installed() == []


def test_the_first_start_compiles_the_project(machine: Machine) -> None:
    """If Python writes no bytecode, an uncompiled hub would compile two hundred modules at each start."""
    assert "cannot be compiled" not in machine.start("hub", PYTHONDONTWRITEBYTECODE="1").stderr
    for package in PACKAGES:
        assert [*(machine.root / package / "__pycache__").iterdir()]


def test_the_second_start_is_quick(machine: Machine) -> None:
    def spent_by_children() -> float:
        """Return the CPU seconds of the child processes that have ended so far."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    machine.start("hub")

    def seconds() -> float:
        begin = spent_by_children()
        assert machine.start("hub").stderr == ""
        return spent_by_children() - begin

    # The maximum CPU seconds of a second start for the environment.
    quick_start = 0.1
    # The best of several, as other load evicts caches.
    assert min(seconds() for _ in range(10)) < quick_start


def test_an_additional_set_is_installed_into_the_same_environment(machine: Machine) -> None:
    machine.start("hub")
    machine.installed()
    assert "up to date" in machine.start("manager").stderr
    assert machine.installed() == ["manager", "project"]
    added = machine.start("hub", "manager", "test")
    assert (added.stdout, machine.installed()) == (
        f"{machine.root}/.venv/bin/python",
        ["hub", "manager", "test", "project"],
    )
    assert machine.start("hub").stderr == ""
    assert machine.installed() == []


@pytest.mark.parametrize("changed", ["pyproject.toml", "requirements/hub.lock"])
def test_a_changed_file_and_its_restoration_each_cause_an_installation(
    changed: str, machine: Machine
) -> None:
    machine.start("hub")
    old = (machine.root / changed).read_text()
    for text in ("new", old):
        machine.installed()
        (machine.root / changed).write_text(text)
        assert "up to date" in machine.start("hub").stderr
        assert machine.installed() == ["hub", "project"]


def test_a_set_whose_lock_changed_is_updated_when_it_is_next_requested(machine: Machine) -> None:
    machine.start("hub", "test")
    (machine.root / "requirements/test.lock").write_text("new")
    machine.installed()
    assert machine.start("hub").stderr == ""
    assert "up to date" in machine.start("hub", "test").stderr
    assert machine.installed() == ["hub", "test", "project"]


def test_a_set_stays_installed_when_it_is_not_requested(machine: Machine) -> None:
    machine.start("hub", "test")
    (machine.root / "pyproject.toml").write_text("new")
    assert "up to date" in machine.start("hub").stderr
    assert machine.start("hub", "test").stderr == ""


def test_a_moved_checkout_gets_a_new_environment(machine: Machine) -> None:
    machine.start("hub")
    machine.root = machine.root.rename(machine.root.with_name("moved"))
    assert "making the environment" in machine.start("hub").stderr


def test_a_linked_environment_outside_the_checkout_is_not_emptied(machine: Machine) -> None:
    other = machine.root.with_name("other")
    other.mkdir()
    (other / "theirs").touch()
    (machine.root / ".venv").symlink_to(other)
    refused = machine.start("hub")
    assert refused.returncode == 2
    assert "remove the symlink" in refused.stderr
    assert (other / "theirs").exists()


@pytest.mark.parametrize("before", ["nothing", "an older environment"])
def test_an_interrupted_installation_is_repeated(before: str, bare: Machine) -> None:
    if before != "nothing":
        bare.install("python3.13")
        bare.start("hub")
        (bare.root / "requirements/hub.lock").write_text("new")
        bare.install("python", pip="kill -9 $PPID; exit 1", at=bare.root / ".venv/bin")
    bare.install("python3.13", pip="kill -9 $PPID; exit 1")
    assert bare.start("hub").returncode != 0
    bare.install("python3.13")
    again = bare.start("hub")
    assert again.returncode == 0
    assert "making the environment" in again.stderr


def test_a_failure_of_pip_is_printed_and_retried(bare: Machine) -> None:
    bare.install("python3.13", pip="echo no route to the index; exit 1")
    failed = bare.start("hub")
    assert failed.returncode == 2
    assert "no route to the index" in failed.stderr
    assert "edgehub-install.log" in failed.stderr
    assert bare.start("hub").returncode == 2
    assert bare.installed() == ["hub", "hub"]


def test_two_concurrent_scripts_install_once(bare: Machine) -> None:
    bare.install("python3.13", pip="sleep 0.2")
    runs = [
        subprocess.Popen(bare.command("hub"), env=bare.environ({}), stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    output = [run.communicate()[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert sum("making the environment" in text for text in output) == 1
    assert bare.installed() == ["hub", "project"]


def test_the_lock_does_not_outlive_the_environment(machine: Machine) -> None:
    *bash, script = machine.command("hub")
    held = subprocess.run(
        [*bash, script + "; echo; ls /proc/self/fd"],
        env=machine.environ({"PATH": f"{machine.path}:{os.defpath}"}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "9" not in held.stdout.splitlines()


@pytest.mark.parametrize("name", ["python3.13", "python3.12", "python3"])
def test_python_is_found_by_each_of_its_names(name: str, bare: Machine) -> None:
    bare.install(name)
    assert bare.start("hub").returncode == 0


def test_a_missing_python_is_reported_clearly(bare: Machine) -> None:
    bare.install("python3", version="(3, 11)")
    failed = bare.start("hub")
    assert failed.returncode == 2
    assert "Python 3.12 or newer is needed" in failed.stderr
    assert "pyenv install" in failed.stderr
    assert not (bare.root / ".venv").exists()


def test_a_python_without_venv_is_reported_clearly(bare: Machine) -> None:
    bare.install("python3.12", version="(3, 12)", venv=False)
    failed = bare.start("hub")
    assert failed.returncode == 2
    assert f"{bare.path}/python3.12 cannot create virtual environments" in failed.stderr
    assert "apt install python3.12-venv" in failed.stderr


@pytest.mark.parametrize("abi", ["cpython-313-x86_64-linux-musl", "cpython-313-arm-linux-gnueabihf"])
def test_a_machine_without_wheels_is_reported_before_pip_runs(abi: str, bare: Machine) -> None:
    bare.install("python3.13", abi=abi, pip="echo no compiler; exit 1")
    lines = bare.start("hub").stderr.splitlines()
    (at,) = [
        number for number, line in enumerate(lines) if f"no wheel for this machine's Python ({abi})" in line
    ]
    assert "docs/supported.md" in lines[at]
    assert at < lines.index("no compiler")


def test_a_python_without_venv_is_skipped_for_one_with_venv(bare: Machine) -> None:
    bare.install("python3.13", venv=False)
    bare.install("python3.12")
    assert f"with {bare.path}/python3.12" in bare.start("hub").stderr


@pytest.mark.parametrize("source", ["variable", "home", "program"])
def test_python_is_found_in_pyenv(source: str, bare: Machine) -> None:
    pyenv = bare.home / ".pyenv" if source == "home" else bare.home.parent / "pyenv"
    for version in ("3.11.9", "3.12.1", "3.13.0", "3.13.1t", "3.14.0"):
        bare.install("python3", at=pyenv / "versions" / version / "bin")
    if source == "program":
        (pyenv / "libexec").mkdir()
        bare.install("pyenv", at=pyenv / "libexec")
        (bare.path / "pyenv").symlink_to(pyenv / "libexec" / "pyenv")
    # A pyenv shim on the PATH refuses, because its version is not selected.
    (bare.path / "python3.13").write_text("#!/bin/bash\nexit 127\n")
    (bare.path / "python3.13").chmod(0o755)
    done = bare.start("hub", **({"PYENV_ROOT": str(pyenv)} if source == "variable" else {}))
    assert f"with {pyenv}/versions/3.13.0/bin/python3" in done.stderr


@pytest.mark.parametrize(("home", "seen"), [("", "none"), ("/nonexistent", "/nonexistent")])
def test_the_environment_is_created_without_home(home: str, seen: str, machine: Machine) -> None:
    *bash, script = machine.command("hub")
    command = [*bash, script + '; printf "\\n%s" "${HOME-none}"']
    done = subprocess.run(
        command, env=machine.environ({"HOME": home}), capture_output=True, text=True, check=True
    )
    # An empty HOME would send caches to the root folder.
    assert done.stdout.splitlines() == [f"{machine.root}/.venv/bin/python", seen]


@pytest.mark.parametrize("cache", ["XDG_CACHE_HOME", "HOME", "TMPDIR"])
def test_a_read_only_checkout_has_its_environment_in_the_cache_folder(cache: str, machine: Machine) -> None:
    # root may write everywhere, so the check in the script is faked.
    script = machine.root / "scripts" / "environment"
    script.write_text(script.read_text().replace("[[ ! -w $root ]]", "true"))
    folder = machine.home.parent / "elsewhere"
    folder.mkdir()
    done = machine.start("hub", **{"HOME": "", cache: str(folder)})
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout).is_relative_to(folder)
    assert not (machine.root / ".venv").exists()
    assert machine.start("hub", **{"HOME": "", cache: str(folder)}).stderr == ""


@pytest.mark.parametrize(
    ("answer", "installs"), [("go1.26.8", False), ("go1.27rc1", False), ("go1.25.3", True), ("", True)]
)
def test_go_is_installed_only_if_none_is_new_enough(answer: str, installs: bool, machine: Machine) -> None:
    (machine.path / "go").write_text(f"#!/bin/bash\n[[ -n '{answer}' ]] && echo '{answer}'\n")
    (machine.path / "go").chmod(0o755)
    machine.start("hub", "go")
    assert machine.installed() == ["hub", *(["go"] if installs else []), "project"]
