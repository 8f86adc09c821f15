"""`scripts/release`: builds the files of a release, reproducibly.

The wheel is built from a copy of the sources with fixed modes, so that neither stray files nor the builder's umask
affect it. Dates come from SOURCE_DATE_EPOCH. Completion for bash and zsh, and the man pages of `edgehub` and
`edgehub-manager`, are generated from the parsers behind `--help`, and are in the wheel below `share`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from addons import command
from controllers import settings
from controllers.bindings import preview
from controllers.registry import CONTROLLERS
from kube.json_type import Json
from kube.option import VERSION, add_commands
from scripts.building.image import CannotBuildError, write_images

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "edgehub", "addons", "kube", "controllers")
"""Files and folders of the wheel's sources."""
MANIFESTS = ("controllers/manifests", "configmaps")
CHART = ROOT / "deploy" / "chart"
LOCKS = {"edgehub": "hub", "edgehub-manager": "manager"}
"""By command: the lock file of its dependencies."""
PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^ ;\\]+)")
DIGEST = re.compile(r"--hash=sha256:(?P<hex>[0-9a-f]{64})")


def command_files() -> dict[Path, str]:
    """Return the completion and man page files, by their paths below `share`."""
    files = {}
    for parser, summary in parsers():
        name = parser.prog
        files[Path("bash-completion/completions", name)] = shtab.complete_bash(parser)
        files[Path("zsh/site-functions", f"_{name}")] = shtab.complete_zsh(parser)
        page = Manpage(parser)
        page.description, page.manual, page.source = summary, "Edgehub", f"edgehub {VERSION}"
        files[Path("man/man1", f"{name}.1")] = str(page)
    return files


def parsers() -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Return each command's parser with its subcommands, and a description of one line."""
    manager = settings.make_parser(list(CONTROLLERS))
    others = argparse.ArgumentParser(add_help=False)
    render = {
        "help": "show what bindings would change",
        "parents": [preview.make_parser()],
        "add_help": False,
    }
    others.add_subparsers().add_parser("render", **render)  # type: ignore[arg-type]  # of mixed values
    add_commands(manager, others)
    for parser, summary in (
        (command.make_parser(has_commands=True), "the edge hub of a Kubernetes node"),
        (manager, "the cloud-side controllers of Edgehub"),
    ):
        complete_files(parser)
        yield parser, summary


def complete_files(parser: argparse.ArgumentParser) -> None:
    """Set file completion for paths, in the subcommands too."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                complete_files(choice)
        elif action.type is Path or action.metavar == "FILE" or action.dest in {"path", "file"}:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab looks there


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="Output folder. Default: dist/.")
    parser.add_argument("--no-images", action="store_true", help="Build no images, which take minutes.")
    parser.add_argument(
        "--address",
        default="",
        metavar="URL",
        help="Where the project is published: the wheel's project URLs, and the chart's home and sources.",
    )
    options = parser.parse_args()
    os.umask(0o022)  # a wheel has the modes of its files
    folder: Path = options.to.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name = f"edgehub-{VERSION}"
    build_packages(folder, options.address)
    manifests = {
        path.name: path.read_bytes() for manifest in MANIFESTS for path in (ROOT / manifest).glob("*.yaml")
    }
    write_archive(folder / f"{name}-manifests.tar.gz", f"{name}-manifests", manifests)
    write_archive(folder / f"{name}.tgz", "edgehub", chart(options.address))
    for program, lock in LOCKS.items():
        text = (ROOT / "requirements" / f"{lock}.lock").read_text()
        (folder / f"{program}-{VERSION}-requirements.txt").write_text(text)
        document = json.dumps(sbom(text, program, VERSION), indent=1)
        (folder / f"{program}-{VERSION}-sbom.json").write_text(document + "\n")
    if not options.no_images:
        build_images(folder)
    files = sorted(folder.iterdir())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (folder / "SHA256SUMS").write_text(sums)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>10} {path.name}")


def build_packages(folder: Path, address: str = "") -> None:
    """Build wheel and source archive. `address` is the project's URL, "" if it is not published."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "sources"
        copy_sources(copy)
        project = copy / "pyproject.toml"
        project.write_text(with_urls(project.read_text(), address))
        write_command_files(copy)
        # A process of its own: setuptools builds what lies in the folder that it is started in.
        for kind in ("wheel", "sdist"):
            build = f"import sys, setuptools.build_meta as backend; backend.build_{kind}(sys.argv[1])"
            command = [sys.executable, "-c", build, str(folder)]
            subprocess.run(command, cwd=copy, check=True, capture_output=True)
    for path in folder.glob("*.tar.gz"):
        with tarfile.open(path) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            contents = {member.name: read(archive, member) for member in members}
        write_archive(path, "", contents)


def with_urls(project: str, address: str) -> str:
    """Return pyproject.toml with the project's URLs; unchanged without an address."""
    urls = f"[project.urls]\nHomepage = {json.dumps(address)}\nSource = {json.dumps(address)}\n\n"
    return project.replace("[project.scripts]\n", f"{urls}[project.scripts]\n", 1) if address else project


def copy_sources(copy: Path) -> None:
    copy.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, copy / name)
    for path in copy.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def write_command_files(copy: Path) -> None:
    """Write completion and man pages beside the sources, for the wheel's `share`, as pyproject.toml requires."""
    for path, text in command_files().items():
        file = copy / "share" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o644)


def chart(address: str = "") -> dict[str, bytes]:
    """Return the files of the chart by path, with links resolved. `address` as in `build_packages`."""
    paths = (path for path in CHART.rglob("*") if path.is_file())
    files = {path.relative_to(CHART).as_posix(): path.read_bytes() for path in paths}
    if address:
        files["Chart.yaml"] += f"home: {json.dumps(address)}\nsources: [{json.dumps(address)}]\n".encode()
    return files


def build_images(folder: Path) -> None:
    """Build the images if this machine can; otherwise print a line with the reason."""
    try:
        write_images(folder)
    except CannotBuildError as error:
        print(f"no images: {error}", file=sys.stderr)


def read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def write_archive(path: Path, folder: str, contents: dict[str, bytes]) -> None:
    """Write a .tar.gz of files in a fixed order, with one date, mode and owner."""
    date = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(contents):
            member = tarfile.TarInfo(f"{folder}/{name}" if folder else name)
            member.size, member.mtime, member.mode = len(contents[name]), date, 0o644
            archive.addfile(member, io.BytesIO(contents[name]))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=date))


def sbom(lock: str, command: str, of: str) -> Json:
    """Return a CycloneDX document of the locked dependencies, each with its version and the digests of its files."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "metadata": {"component": {"type": "application", "name": command, "version": of}},
        "components": [component(entry) for entry in entries(lock)],
    }


def entries(lock: str) -> Iterable[str]:
    """Return the packages of a lock, each with the indented lines of its digests."""
    return re.findall(r"^[\w.-]+==.*(?:\n +.*)*", lock, re.MULTILINE)


def component(entry: str) -> Json:
    match = PINNED.match(entry)
    assert match is not None
    name, pinned = match["name"], match["version"]
    return {
        "type": "library",
        "name": name,
        "version": pinned,
        "purl": f"pkg:pypi/{name}@{pinned}",
        # CycloneDX lists the digests of a component's own files; here any one of them is installed.
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"pkg:pypi/{name}@{pinned}",
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in DIGEST.findall(entry)],
            }
        ],
    }


if __name__ == "__main__":
    main()
