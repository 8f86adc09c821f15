"""`scripts/release`: builds the files of a release, reproducibly.

The wheel is built from a copy of the sources with fixed modes, so that neither stray files nor the umask of whoever
builds it get in. Dates come from SOURCE_DATE_EPOCH.
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
from collections.abc import Iterable
from pathlib import Path

from addons.settings import version
from kube.json_type import Json

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "addons", "kube", "controllers")
"""What the wheel is built from."""
MANIFESTS = ("controllers/manifests", "configmaps")
LOCK = ROOT / "requirements" / "hub.lock"
PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^ ;\\]+)")
DIGEST = re.compile(r"--hash=sha256:(?P<hex>[0-9a-f]{64})")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="folder of the files. Default: dist/.")
    folder: Path = parser.parse_args().to.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name = f"edgehub-{version()}"
    build_packages(folder)
    manifests = {path.name: path.read_bytes() for each in MANIFESTS for path in (ROOT / each).glob("*.yaml")}
    write_archive(folder / f"{name}-manifests.tar.gz", f"{name}-manifests", manifests)
    shutil.copyfile(LOCK, folder / f"{name}-requirements.txt")
    (folder / f"{name}-sbom.json").write_text(json.dumps(sbom(LOCK.read_text(), version()), indent=1) + "\n")
    files = sorted(folder.iterdir())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (folder / "SHA256SUMS").write_text(sums)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>10} {path.name}")


def build_packages(folder: Path) -> None:
    """Build wheel and source archive."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "sources"
        copy_sources(copy)
        # A process of its own: setuptools builds what lies in the folder that it is started in.
        for kind in ("wheel", "sdist"):
            build = f"import sys, setuptools.build_meta as backend; backend.build_{kind}(sys.argv[1])"
            command = [sys.executable, "-c", build, str(folder)]
            subprocess.run(command, cwd=copy, check=True, capture_output=True)
    for path in folder.glob("*.tar.gz"):
        with tarfile.open(path) as archive:
            members = [each for each in archive.getmembers() if each.isfile()]
            contents = {each.name: read(archive, each) for each in members}
        write_archive(path, "", contents)


def copy_sources(copy: Path) -> None:
    copy.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, copy / name)
    for path in copy.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def write_archive(path: Path, folder: str, contents: dict[str, bytes]) -> None:
    """Write a .tar.gz of files, in one order and with one date, mode and owner."""
    date = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(contents):
            member = tarfile.TarInfo(f"{folder}/{name}" if folder else name)
            member.size, member.mtime, member.mode = len(contents[name]), date, 0o644
            archive.addfile(member, io.BytesIO(contents[name]))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=date))


def sbom(lock: str, of: str) -> Json:
    """A CycloneDX document of the locked dependencies: each with its version and the digests of its files."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "metadata": {"component": {"type": "application", "name": "edgehub", "version": of}},
        "components": [component(entry) for entry in entries(lock)],
    }


def entries(lock: str) -> Iterable[str]:
    """The packages of a lock, each with the indented lines of its digests."""
    return re.findall(r"^[\w.-]+==.*(?:\n +.*)*", lock, re.MULTILINE)


def component(entry: str) -> Json:
    found = PINNED.match(entry)
    assert found is not None
    name, pinned = found["name"], found["version"]
    return {
        "type": "library",
        "name": name,
        "version": pinned,
        "purl": f"pkg:pypi/{name}@{pinned}",
        # CycloneDX tells the digests of a component's own files; here any one of them is installed.
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
