"""Container images made of local programs, as docker archives for `ctr images import`."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.node_machine.commands import FailedError, run, say
from scripts.node_machine.instances import cache_folder
from scripts.node_machine.programs import kubernetes_version
from scripts.node_machine.userland import locked

AGNHOST_TAGS = ("2.63.0", "2.55")
BUSYBOX_TAG = "1.37.0-1"
GLIBC_DNS_TAG = "2.0.0"
"""The tag of the DNS test image with glibc, as Kubernetes' end-to-end tests name it."""
TOOLS = ("xtables-nft-multi", "conntrack")
"""Programs of the userland that kube-proxy runs."""
CLIENTS = {
    "/bin/sh": "usr/bin/dash",
    "/bin/dig": "usr/bin/dig",
    "/bin/nc": "usr/bin/nc.openbsd",
    "/bin/curl": "usr/bin/curl",
    "/bin/getent": "usr/bin/getent",
}
"""Programs of the userland for the DNS and Service tests in agnhost and its glibc variant, by their files.

busybox' shell would run its own nc, which knows few options.
"""
LIBRARIES = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
"""Libraries that glibc loads at run time, in addition to the linked ones."""
TMP = "/tmp"  # noqa: S108 - of the images
FORMAT = "5"
"""Version of the archive's layout; a new number rebuilds all images."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image's names, its files by their path in it, its links, and its command."""

    names: Sequence[str]
    files: Mapping[str, Path]
    entrypoint: Sequence[str]
    links: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()


def images(programs: Mapping[str, Path], base: Path) -> list[Image]:
    """Return a node's images, made of the programs and the userland."""
    named = kubeadm_images(programs["kubeadm"])
    registry = named["pause"].rpartition("/")[0]
    tests = f"{registry}/e2e-test-images"
    busybox = base / "usr/bin/busybox"
    shell = {"/bin/busybox": busybox}
    applets = {f"/bin/{name}": "busybox" for name in run(busybox, "--list").split() if name != "busybox"}
    accounts = {
        f"/etc/{name}": base / "etc" / name
        for name in ("passwd", "group", "nsswitch.conf")
        if (base / "etc" / name).exists()
    }
    extensions = sorted(base.glob("usr/lib/*/xtables/*.so"))
    tables = {f"/usr/sbin/{name}": "xtables-nft-multi" for name in _tables()}
    return [
        Image([named["pause"]], {"/pause": programs["pause"]}, ["/pause"]),
        Image(
            [f"{tests}/busybox:{BUSYBOX_TAG}", "docker.io/library/busybox:latest"], shell, [], applets, ["sh"]
        ),
        Image(
            [named["coredns"]],
            {"/coredns": programs["coredns"], **_libraries(base, [programs["coredns"]])},
            ["/coredns"],
        ),
        Image(
            [named["kube-proxy"]],
            {
                "/usr/local/bin/kube-proxy": programs["kube-proxy"],
                **{f"/usr/sbin/{name}": base / "usr/sbin" / name for name in TOOLS},
                **{f"/{path.relative_to(base)}": path for path in extensions},
                **_libraries(
                    base, [programs["kube-proxy"], *(base / "usr/sbin" / name for name in TOOLS), *extensions]
                ),
                **accounts,
                **shell,
            },
            [],
            {**tables, **applets},
            ["/usr/local/bin/kube-proxy"],
        ),
        _agnhost(tests, programs["agnhost"], base, {**accounts, **shell}, applets),
        Image(
            [f"{registry}/kubectl:{kubernetes_version()}"],
            {"/bin/kubectl": programs["kubectl"], **_libraries(base, [programs["kubectl"]]), **shell},
            ["/bin/kubectl"],
            applets,
        ),
    ]


def _agnhost(
    registry: str, program: Path, base: Path, files: Mapping[str, Path], links: Mapping[str, str]
) -> Image:
    """Return the image of most tests, including the DNS tests with glibc: it has the programs of both."""
    clients = {name: base / path for name, path in CLIENTS.items()}
    return Image(
        [
            *(f"{registry}/agnhost:{tag}" for tag in AGNHOST_TAGS),
            f"{registry}/glibc-dns-testing:{GLIBC_DNS_TAG}",
        ],
        {"/agnhost": program, **clients, **_libraries(base, [program, *clients.values()]), **files},
        ["/agnhost"],
        links,
        ["pause"],
    )


def kubeadm_images(kubeadm: Path) -> dict[str, str]:
    """Return the images that kubeadm's manifests name, by the last part of the name without its tag."""
    listed = run(kubeadm, "config", "images", "list", "--kubernetes-version", kubernetes_version())
    return {name.rpartition("/")[2].partition(":")[0]: name for name in listed.split()}


def ensure_images(programs: Mapping[str, Path], base: Path) -> Path:
    """Return the archive of all images for `ctr images import`; rebuild it if a program has changed."""
    made_of = [FORMAT, base.name, *(f"{name} {path.parent.name}" for name, path in sorted(programs.items()))]
    archive = (
        cache_folder(os.environ)
        / f"images-{hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:16]}.tar"
    )
    if not archive.exists():
        with locked(archive):
            if not archive.exists():
                say("making the images")
                unfinished = archive.with_suffix(".unfinished")
                write_archive(unfinished, images(programs, base))
                unfinished.rename(archive)
    return archive


def write_archive(file: Path, wanted: Sequence[Image]) -> None:
    """Write a docker archive: a layer and a configuration for each image, and a manifest."""
    listed = []
    with tarfile.open(file, "w") as archive:
        for image in wanted:
            layer = _layer(image)
            digest = hashlib.sha256(layer).hexdigest()
            configuration = json.dumps(_configuration(image, digest)).encode()
            name = hashlib.sha256(configuration).hexdigest()
            _add(archive, f"{digest}/layer.tar", layer)
            _add(archive, f"{name}.json", configuration)
            listed.append(
                {"Config": f"{name}.json", "RepoTags": [*image.names], "Layers": [f"{digest}/layer.tar"]}
            )
        _add(archive, "manifest.json", json.dumps(listed).encode())


def _configuration(image: Image, layer: str) -> dict[str, object]:
    return {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
        "os": "linux",
        "config": {
            "Entrypoint": [*image.entrypoint],
            "Cmd": [*image.command],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
    }


def _layer(image: Image) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as layer:
        for folder in sorted(
            {
                TMP,
                "/etc",
                *(str(above) for path in [*image.files, *image.links] for above in Path(path).parents),
            }
        ):
            if folder != "/":
                made = tarfile.TarInfo(folder.lstrip("/"))
                made.type, made.mode = tarfile.DIRTYPE, 0o1777 if folder == TMP else 0o755
                layer.addfile(made)
        for inside, path in sorted(image.files.items()):
            found = path.stat()
            # Python takes the bytecode of a module by its date.
            _add(
                layer, inside.lstrip("/"), path.read_bytes(), found.st_mode & 0o755, date=int(found.st_mtime)
            )
        for inside, target in sorted(image.links.items()):
            if inside not in image.files:
                link = tarfile.TarInfo(inside.lstrip("/"))
                link.type, link.linkname = tarfile.SYMTYPE, target
                layer.addfile(link)
    return held.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644, date: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), mode, date
    archive.addfile(entry, io.BytesIO(data))


def _tables() -> list[str]:
    families = ("iptables", "ip6tables")
    return [f"{family}{suffix}" for family in families for suffix in ("", "-save", "-restore")]


def linked(said: str) -> list[str]:
    """Parse the output of `ldd`; return the files that a program is linked to."""
    return re.findall(r"(?:=> |^\s+)(/\S+) \(0x", said, re.MULTILINE)


def _libraries(base: Path, programs: Sequence[Path]) -> dict[str, Path]:
    """Return the libraries that these programs load, by path; none for static programs."""
    wanted: dict[str, Path] = {}
    for program in programs:
        try:
            said = run("unshare", "--mount", "sh", "-euc", LDD, "sh", base, program)
        except FailedError as error:
            if "not a dynamic executable" in error.args[0]:
                continue
            raise
        for name in linked(said):
            wanted[name] = (base / name.lstrip("/")).resolve()
    for name in LIBRARIES:
        for found in base.glob(f"usr/lib/*-linux-gnu/{name}"):
            wanted[f"/lib/{found.relative_to(base / 'usr/lib')}"] = found.resolve()
    return wanted


LDD = """\
mount --bind "$1" "$1"
mount -t tmpfs tmpfs "$1/mnt"
touch "$1/mnt/program"
mount --bind "$2" "$1/mnt/program"
exec chroot "$1" ldd /mnt/program
"""
"""Runs the userland's dynamic loader, not this machine's."""
