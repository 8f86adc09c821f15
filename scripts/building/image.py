"""`scripts/image`: builds the images of hub and manager with buildah, on a base of Debian packages by mmdebstrap.

The base and the layers with locked packages are cached for each user, so a build after a change of the sources takes
seconds. Two builds of the same sources and packages are equal, byte for byte, because all files have one date. pip
within the build uses the proxy, mirror and CA of this machine's pip.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kube.option import VERSION

ROOT = Path(__file__).parents[2]
TARGETS = {"hub": "edgehub", "manager": "edgehub-manager"}
"""Name of the image by target of the Containerfile."""
SUITE = "trixie"
"""The Debian release with Python 3.13."""
PACKAGES = ("python3", "python3-venv")
BASE = f"localhost/edgehub-base:{SUITE}-1980"
DATE = 315532800
"""The date of all files, in seconds since 1970: the first second of 1980.

It cannot be the commit's date: base and cached layers are shared by the images of several commits.
"""
MOST_LAYERS = 30
"""Cached layers without a name. A build adds two or three, of some MB each."""
NO_INDEX = ("Retrying (Retry(", "Temporary failure in name resolution", "ReadTimeoutError")
"""Messages of pip when no package index answers."""
OF_THE_MACHINE = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Files of this machine by which pip within the build finds its package index."""


class CannotBuildError(Exception):
    """This machine cannot build images; the message names what is missing."""


class BuildError(Exception):
    """The build of a target failed; the message has buildah's last lines."""


class Builder:
    """buildah with a storage of its own, in a folder that outlasts the build."""

    def __init__(self, folder: Path) -> None:
        """CannotBuildError if this machine lacks the tools."""
        missing = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
        if missing:
            raise CannotBuildError(
                f"{' and '.join(missing)} not found (Debian: apt-get install {' '.join(missing)})"
            )
        if os.geteuid() != 0:
            raise CannotBuildError(
                "images are built by root alone: mmdebstrap makes a base with Debian's owners"
            )
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._driver = "overlay" if can_overlay(folder) else "vfs"

    def build(self, target: str) -> str:
        """Build a target; return the name of its image.

        CannotBuildError if no base can be made or no package index answers; BuildError if a step of the Containerfile
        fails.
        """
        self._prune_layers()
        self.make_base()
        name = f"localhost/{TARGETS[target]}:{VERSION}"
        previous = self.run("images", "--quiet", "--no-trunc", "--filter", f"reference={name}")
        try:
            self._build(target, name)
        except BuildError as error:
            if any(phrase in str(error) for phrase in NO_INDEX):
                raise CannotBuildError("the package index does not answer") from error
            raise
        if previous and previous != self.run("images", "--quiet", "--no-trunc", name):
            self.run("rmi", "--force", previous)
        return name

    def _build(self, target: str, name: str) -> None:
        mounts = [f"--volume={path}:{path}:ro" for path in OF_THE_MACHINE if Path(path).exists()]
        self.run(
            *("build", "--layers", "--isolation=chroot", "--network=host", f"--timestamp={DATE}"),
            *(f"--build-arg=BASE={BASE}", *mounts, f"--target={target}", f"--tag={name}", str(ROOT)),
        )

    def _prune_layers(self) -> None:
        """Delete the cached layers if there are many: no build uses layers of earlier sources."""
        if len(self.run("images", "--quiet", "--filter", "dangling=true").split()) > MOST_LAYERS:
            self.run("rmi", "--prune", "--force")

    def write(self, image: str, file: Path) -> None:
        """Write an image as an OCI archive for `ctr image import` and `podman load`.

        buildah's own archives would have files in the folder's order, with the current time.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as temporary:
            self.run("push", "--quiet", image, f"oci:{temporary}/image")
            layout = Path(temporary) / "image"
            with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
                for path in sorted(path for path in layout.rglob("*") if path.is_file()):
                    member = tarfile.TarInfo(path.relative_to(layout).as_posix())
                    member.size, member.mtime, member.mode = path.stat().st_size, DATE, 0o644
                    with path.open("rb") as data:
                        archive.addfile(member, data)

    def run(self, *arguments: str) -> str:
        """Run buildah, and return its output; BuildError if it fails."""
        storage = [f"--root={self._folder / 'storage'}", f"--runroot={self._folder / 'run'}"]
        done = subprocess.run(
            ["buildah", *storage, f"--storage-driver={self._driver}", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BuildError(f"buildah {arguments[0]} failed:\n{(done.stdout + done.stderr)[-4000:]}")
        return done.stdout.strip()

    def make_base(self) -> None:
        """Make, once, the base of all other images; CannotBuildError if this machine cannot make it."""
        if BASE in self.run("images", "--format={{.Name}}:{{.Tag}}").splitlines():
            return
        with tempfile.TemporaryDirectory(dir=self._folder) as temporary:
            archive = Path(temporary) / "base.tar"
            command = ["mmdebstrap", "--variant=essential", f"--include={','.join(PACKAGES)}", "--quiet"]
            # No container reads these.
            command += ["--dpkgopt=path-exclude=/usr/share/{doc,locale,man}/*"]
            done = subprocess.run(
                [*command, SUITE, str(archive)],
                env={**os.environ, "SOURCE_DATE_EPOCH": str(DATE)},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise CannotBuildError(f"mmdebstrap failed:\n{done.stderr[-4000:]}")
            container = self.run("from", "scratch")
            self.run("add", "--quiet", container, str(archive), "/")
            self.run("commit", "--quiet", "--rm", f"--timestamp={DATE}", container, BASE)


def can_overlay(folder: Path) -> bool:
    """Whether the kernel can mount overlays here, which need less space than copies."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        names = ["lower", "upper", "work", "merged"]
        for name in names:
            (Path(temporary) / name).mkdir()
        lower, upper, work, merged = (str(Path(temporary) / name) for name in names)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mount = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, merged]
        return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def storage_folder() -> Path:
    """Return the folder of this user's cached base and layers."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "edgehub" / "images"


def write_images(folder: Path, targets: Sequence[str] = tuple(TARGETS)) -> list[Path]:
    """Build targets and write each as an archive into a folder; CannotBuildError or BuildError."""
    builder = Builder(storage_folder())
    files = []
    for target in targets:
        file = folder / f"{TARGETS[target]}-{VERSION}.oci.tar"
        builder.write(builder.build(target), file)
        files.append(file)
    return files


def main() -> int:
    """Build the images that the command line names; exit status 1 if this machine cannot."""
    parser = argparse.ArgumentParser(prog="scripts/image", description=__doc__)
    parser.add_argument("target", nargs="*", help=f"{' or '.join(TARGETS)}. Default: both.")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="Output folder. Default: dist/.")
    options = parser.parse_args()
    unknown = set(options.target) - set(TARGETS)
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    options.to.mkdir(parents=True, exist_ok=True)
    try:
        for file in write_images(options.to, options.target or tuple(TARGETS)):
            print(f"{file.stat().st_size / 1e6:>8.1f} MB {file}")
    except (CannotBuildError, BuildError) as error:
        print(f"scripts/image: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
