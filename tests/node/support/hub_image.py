"""The hub's image on a node: the userland of the node, and this checkout's hub in it."""

from __future__ import annotations

from pathlib import Path

from kube.option import VERSION
from scripts.node_machine.images import Image, write_archive
from scripts.node_machine.instances import ROOT
from scripts.node_machine.machine import Machine
from scripts.node_machine.userland import CHECKOUT, ensure_userland

NAME = f"localhost/edgehub:{VERSION}"
"""The name that `scripts/image` gives it; that script needs programs which a machine may lack."""
USERLAND = ("bin", "sbin", "lib", "lib64", "etc", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64")
HUB = ("srv/hub", "usr/local/bin")
PACKAGES = ("edgehub", "kube", "addons", "controllers")
"""Packages of the checkout that the Containerfile has in the image."""
ARCHIVE = "/srv/hub-image.tar"


def import_image(node: Machine) -> None:
    """Make the image, and import it on a node."""
    write_archive(Path(f"/proc/{node.pid}/root{ARCHIVE}"), [_image()])
    node.run("ctr", "--namespace=k8s.io", "images", "import", ARCHIVE)
    node.run("rm", ARCHIVE)


def _image() -> Image:
    hub, base = ensure_userland()
    files: dict[str, Path] = {}
    links: dict[str, str] = {}
    for layer, inside, parts in ((base, "", USERLAND), (hub, "", HUB), (ROOT, CHECKOUT, PACKAGES)):
        for part in parts:
            for path in (layer / part, *(layer / part).rglob("*")):
                name = f"{inside}/{path.relative_to(layer)}"
                if path.is_symlink():
                    links[name] = str(path.readlink())
                elif path.is_file():
                    files[name] = path
    return Image([NAME], files, [], links, ["edgehub"])
