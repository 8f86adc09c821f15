"""The hub's image on a node: the node's userland with this checkout's hub."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from kube.option import VERSION
from scripts.node_machine.images import Image, write_archive
from scripts.node_machine.instances import ROOT
from scripts.node_machine.machine import Machine
from scripts.node_machine.userland import CHECKOUT, ensure_userland

NAME = f"localhost/edgehub:{VERSION}"
"""The image name that `scripts/image` uses; that script needs programs which a machine may lack."""
USERLAND = ("bin", "sbin", "lib", "lib64", "etc", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64")
HUB = ("srv/hub", "usr/local/bin")
PACKAGES = ("edgehub", "kube", "addons", "controllers")
"""Packages of the checkout that the Containerfile copies into the image."""
ARCHIVE = "/srv/hub-image.tar"


OTHER, BAD, MISSING = "9.1.0", "9.2.0", "9.3.0"
"""Versions, as tags of the image: a working one, one whose hub ends at once, and one that no registry has."""
ENDS = "raise SystemExit('this version is broken')\n"


def named(version: str) -> str:
    """Return the image of a version."""
    return f"{NAME.rpartition(':')[0]}:{version}"


def import_image(node: Machine, version: str = VERSION) -> None:
    """Build the image of a version, and import it on a node."""
    with tempfile.TemporaryDirectory() as folder:
        changed = _changed(Path(folder), version)
        write_archive(Path(f"/proc/{node.pid}/root{ARCHIVE}"), [_image(named(version), changed)])
    node.run("ctr", "--namespace=k8s.io", "images", "import", ARCHIVE)
    node.run("rm", ARCHIVE)


def _changed(folder: Path, version: str) -> dict[str, Path]:
    """Return the files in which a version differs from the checkout, by their path."""
    texts: dict[str, str] = {}
    if version != VERSION:
        option = (ROOT / "kube/option.py").read_text()
        texts["kube/option.py"] = option.replace(f'VERSION = "{VERSION}"', f'VERSION = "{version}"')
    if version == BAD:
        texts["addons/hub.py"] = ENDS
    for number, text in enumerate(texts.values()):
        (folder / str(number)).write_text(text)
    return {name: folder / str(number) for number, name in enumerate(texts)}


def _image(name: str, changed: Mapping[str, Path]) -> Image:
    hub, base = ensure_userland()
    files: dict[str, Path] = {}
    links: dict[str, str] = {}
    for layer, inside, parts in ((base, "", USERLAND), (hub, "", HUB), (ROOT, CHECKOUT, PACKAGES)):
        for part in parts:
            for path in (layer / part, *(layer / part).rglob("*")):
                inner = f"{inside}/{path.relative_to(layer)}"
                if path.is_symlink():
                    links[inner] = str(path.readlink())
                elif path.is_file():
                    files[inner] = path
    files |= {f"{CHECKOUT}/{path}": file for path, file in changed.items()}
    return Image([name], files, [], links, ["edgehub"])
